"""torch.compile knows the device: a DeviceInterface, registered when torch._dynamo is imported.

Importing torch._dynamo takes longer than everything here together, so the first use of the device must not do it.
"""

from __future__ import annotations

from typing import Any

from torch_sinter._src import runtime
from torch_sinter._src.hooks.on_import import on_import


def _register(module: Any) -> None:
    from torch_sinter._src.dynamo_interface import make_interface

    interface = make_interface(module.DeviceInterface)
    for device in (runtime.NAME, f"{runtime.NAME}:0"):
        module.register_interface_for_device(device, interface)


def install() -> None:
    on_import("torch._dynamo.device_interface", _register)
