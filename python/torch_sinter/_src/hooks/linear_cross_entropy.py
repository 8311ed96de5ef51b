"""F.linear_cross_entropy takes for the device what it takes for the CPU.

Its policy for 16-bit types is looked up by the name of the device, and other devices get a fallback that accumulates
in 16 bits: other numbers than on the CPU, from the same kernels. It can go when the table can be added to.
"""

from __future__ import annotations

import torch

from torch_sinter._src.hooks.on_import import on_import


def _adopt(module: object) -> None:
    defaults = getattr(module, "_AUTO_DEFAULTS", None)
    options = getattr(module, "LinearCrossEntropyOptions", None)
    resolve = getattr(options, "_resolve_auto_acc_dtype", None)
    if defaults is None or resolve is None:
        return
    for device, dtype in list(defaults):
        if device == "cpu":
            defaults["sinter", dtype] = defaults[device, dtype]

    def resolve_for_host_memory(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        if device is not None and device.type == "sinter":
            device = torch.device("cpu")
        return resolve(dtype, device)

    options._resolve_auto_acc_dtype = staticmethod(resolve_for_host_memory)


def install() -> None:
    on_import("torch.nn.modules.linear_cross_entropy_options", _adopt)
