"""torch.compile knows the device: a DeviceInterface, registered when torch._dynamo is imported.

Importing torch._dynamo takes longer than everything here together, so the first use of the device must not do it.
Dynamo has no hook for backends that come before it; what it does have is an import, which a finder for that one
module name notices.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

from torch_sinter._src import runtime

_MODULE = "torch._dynamo.device_interface"


def _register(module: Any) -> None:
    from torch_sinter._src.dynamo_interface import make_interface

    interface = make_interface(module.DeviceInterface)
    for device in (runtime.NAME, f"{runtime.NAME}:0"):
        module.register_interface_for_device(device, interface)


class _Loader(importlib.abc.Loader):
    """The module's own loader, and our registration after it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        _register(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install() -> None:
    module = sys.modules.get(_MODULE)
    if module is not None:
        _register(module)
    else:
        sys.meta_path.insert(0, _Finder())
