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

_USES = (
    "_accelerator_emptyCache",
    "_accelerator_emptyHostCache",
    "_accelerator_exchangeDevice",
    "_accelerator_getDeviceCapability",
    "_accelerator_getDeviceIndex",
    "_accelerator_getDeviceStats",
    "_accelerator_getMemoryInfo",
    "_accelerator_getStream",
    "_accelerator_isAllocatorInitialized",
    "_accelerator_maybeExchangeDevice",
    "_accelerator_resetAccumulatedStats",
    "_accelerator_resetPeakStats",
    "_accelerator_setDeviceIndex",
    "_accelerator_setStream",
    "_accelerator_synchronizeDevice",
)

_originals: dict[tuple[Any, str], Any] = {}


def _other() -> torch.device | None:
    """The accelerator that this torch was built for, in the order in which C++ looks for it."""
    for name in ("cuda", "xpu", "mps"):
        if getattr(torch._C, f"_has_{name}", False):
            return torch.device(name)
    return None


def _other_or_cpu() -> torch.device:
    return _other() or torch.device("cpu")


def _activities_without_us() -> set[Any]:
    """What torch.profiler records by default. Naming the device adds its activity, and columns to each table."""
    from torch._C._profiler import ProfilerActivity

    return _originals[torch.autograd, "_supported_activities"]() - {ProfilerActivity.PrivateUse1}


def _refuse() -> Any:
    raise RuntimeError(NONE_AVAILABLE)


def hide(may_be_found: Callable[[], bool]) -> None:
    """Replace the functions. `may_be_found` says at each call whether the original may answer, and readies it."""
    hidden = {
        (torch._C, "_accelerator_getAccelerator"): _other,
        (torch._C, "_get_accelerator"): _other_or_cpu,
        **{(torch._C, name): _refuse for name in _USES},
        (torch.autograd, "_supported_activities"): _activities_without_us,
    }
    for (module, name), without_us in hidden.items():
        original = getattr(module, name, None)
        if original is not None:
            _originals[module, name] = original
            setattr(module, name, _choose(original, without_us, may_be_found))


def _choose(original: Any, without_us: Callable[[], Any], may_be_found: Callable[[], bool]) -> Any:
    def function(*args: Any) -> Any:
        return original(*args) if may_be_found() else without_us()

    return function


def show() -> None:
    for (module, name), original in _originals.items():
        setattr(module, name, original)
