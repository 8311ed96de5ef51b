"""A process group for the device: there is a default backend, plain "gloo" will do, and CPU tensors still pass.

torch.distributed keeps two tables by device type and fills them for its own devices only. The third change is because
our memory is the host's: collectives of the device are the CPU's, and scripts that ran before pass CPU tensors too.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed

from torch_sinter._src import runtime

_BACKEND = "gloo"


def install() -> None:
    if not torch.distributed.is_available():
        return
    from torch.distributed.distributed_c10d import Backend, BackendConfig

    Backend.default_device_backend_map.setdefault(runtime.NAME, _BACKEND)
    devices = Backend.backend_capability.get(_BACKEND)
    if devices is not None and runtime.NAME not in devices:
        devices.append(runtime.NAME)

    original = BackendConfig.__init__

    @functools.wraps(original)
    def __init__(self: Any, backend: Any) -> None:
        original(self, backend)
        if runtime.NAME in self.device_backend_map:
            self.device_backend_map.setdefault("cpu", Backend(_BACKEND))

    BackendConfig.__init__ = __init__  # type: ignore[method-assign]
