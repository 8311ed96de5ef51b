"""torch.accelerator stays as it was until the device is asked for.

To name a PrivateUse1 backend makes it *the* accelerator of the process. Every user of that in Python
(torch.accelerator, DataLoader, torch.distributed, FSDP, checkpoint) goes through the functions below and looks them up
on torch._C at each call; so to replace them hides the device, and to put them back leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# What torch says where there is none.
NONE_AVAILABLE = "Cannot access accelerator device when none is available."

# What each does, by the name of the same function in the module of the accelerator that torch was built for
# (torch.cuda): C++ would ask our device, because a PrivateUse1 backend comes first there.
_USES = {
    "_accelerator_emptyCache": "empty_cache",
    "_accelerator_emptyHostCache": "",
    "_accelerator_exchangeDevice": "_exchange_device",
    "_accelerator_getDeviceCapability": "",
    "_accelerator_getDeviceIndex": "current_device",
    "_accelerator_getDeviceStats": "memory_stats_as_nested_dict",
    "_accelerator_getMemoryInfo": "mem_get_info",
    "_accelerator_getStream": "current_stream",
    "_accelerator_isAllocatorInitialized": "is_initialized",
    "_accelerator_maybeExchangeDevice": "_maybe_exchange_device",
    "_accelerator_resetAccumulatedStats": "reset_accumulated_memory_stats",
    "_accelerator_resetPeakStats": "reset_peak_memory_stats",
    "_accelerator_setDeviceIndex": "set_device",
    "_accelerator_setStream": "set_stream",
    "_accelerator_synchronizeDevice": "synchronize",
}

_originals: dict[tuple[Any, str], Any] = {}


def _other() -> torch.device | None:
    """The accelerator that this torch was built for, in the order in which C++ looks for it."""
    for name in ("cuda", "xpu", "mps"):
        if getattr(torch._C, f"_has_{name}", False):
            return torch.device(name)
    return None


def _other_or_cpu() -> torch.device:
    """As `_other`, but only if there is such a device in the machine."""
    other = _other()
    if other is None:
        return torch.device("cpu")
    counted = getattr(torch._C, f"_{other.type}_getDeviceCount", None)  # 0 without a driver, too
    present = counted() > 0 if counted else torch.get_device_module(other.type).is_available()
    return other if present else torch.device("cpu")


def _activities_without_us() -> set[Any]:
    """What torch.profiler records by default. Naming the device adds its activity, and columns to each table."""
    from torch._C._profiler import ProfilerActivity

    return _originals[torch.autograd, "_supported_activities"]() - {ProfilerActivity.PrivateUse1}


def _use(name: str) -> Callable[..., Any]:
    def use(*args: Any) -> Any:
        other = _other()
        function = getattr(torch.get_device_module(other.type), _USES[name], None) if other and _USES[name] else None
        if function is None:
            raise RuntimeError(NONE_AVAILABLE)
        return function(*args)

    return use


def hide(may_be_found: Callable[[], bool]) -> None:
    """Replace the functions. `may_be_found` says at each call whether the original may answer, and readies it."""
    hidden = {
        (torch._C, "_accelerator_getAccelerator"): _other,
        (torch._C, "_get_accelerator"): _other_or_cpu,
        **{(torch._C, name): _use(name) for name in _USES},
        (torch.autograd, "_supported_activities"): _activities_without_us,
    }
    for (module, name), without_us in hidden.items():
        original = getattr(module, name, None)
        if original is not None:
            _originals[module, name] = original
            setattr(module, name, _choose(original, without_us, may_be_found))


def _choose(original: Any, without_us: Callable[..., Any], may_be_found: Callable[[], bool]) -> Any:
    def function(*args: Any) -> Any:
        return original(*args) if may_be_found() else without_us(*args)

    return function


def show() -> None:
    for (module, name), original in _originals.items():
        setattr(module, name, original)
