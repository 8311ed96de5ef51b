"""`init_process_group()` without a backend finds one, and plain "gloo" serves the device as well.

torch.distributed keeps two tables by device type and fills them for its own devices only.
"""

from __future__ import annotations

import torch.distributed

from torch_sinter._src import runtime

_BACKEND = "gloo"


def install() -> None:
    if not torch.distributed.is_available():
        return
    backend = torch.distributed.Backend
    backend.default_device_backend_map.setdefault(runtime.NAME, _BACKEND)
    devices = backend.backend_capability.get(_BACKEND)
    if devices is not None and runtime.NAME not in devices:
        devices.append(runtime.NAME)
