"""Doing something when a module is imported, or at once if it was imported already.

For libraries that we neither depend on nor may import by ourselves (they are slow, or not there), and that have no
hook for devices. A finder watches for the exact name, steps aside, and lets the module's own loader do the work.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

Action = Callable[[Any], None]


class _Loader(importlib.abc.Loader):
    """The module's own loader, and the action after it."""

    def __init__(self, inner: Any, action: Action) -> None:
        self._inner = inner
        self._action = action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Whoever asks the module for its loader (for its source, its resources) is to find the real one.
        module.__loader__ = self._inner
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        self._inner.exec_module(module)
        self._action(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, action: Action) -> None:
        self._name = name
        self._action = action

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._action)
        return spec


def on_import(name: str, action: Action) -> None:
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    else:
        sys.meta_path.insert(0, _Finder(name, action))
