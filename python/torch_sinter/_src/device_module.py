"""Everything of `torch.sinter`, in the words of torch.cuda.

The public names of this module are copied into `torch.sinter` (the module object itself is torch_sinter_autoload's).
There is one device, index 0, whose memory is the host's. Functions that only ask load nothing; functions that use the
device load it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from torch_sinter._src import runtime
from torch_sinter._src.memory import (
    empty_cache as empty_cache,
)
from torch_sinter._src.memory import (
    max_memory_allocated as max_memory_allocated,
)
from torch_sinter._src.memory import (
    max_memory_reserved as max_memory_reserved,
)
from torch_sinter._src.memory import (
    mem_get_info as mem_get_info,
)
from torch_sinter._src.memory import (
    memory_allocated as memory_allocated,
)
from torch_sinter._src.memory import (
    memory_reserved as memory_reserved,
)
from torch_sinter._src.memory import (
    memory_stats as memory_stats,
)
from torch_sinter._src.memory import (
    memory_summary as memory_summary,
)
from torch_sinter._src.memory import (
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
)
from torch_sinter._src.memory import (
    reset_peak_memory_stats as reset_peak_memory_stats,
)
from torch_sinter._src.random import (
    default_generators as default_generators,
)
from torch_sinter._src.random import (
    get_rng_state as get_rng_state,
)
from torch_sinter._src.random import (
    get_rng_state_all as get_rng_state_all,
)
from torch_sinter._src.random import (
    initial_seed as initial_seed,
)
from torch_sinter._src.random import (
    manual_seed as manual_seed,
)
from torch_sinter._src.random import (
    manual_seed_all as manual_seed_all,
)
from torch_sinter._src.random import (
    seed as seed,
)
from torch_sinter._src.random import (
    seed_all as seed_all,
)
from torch_sinter._src.random import (
    set_rng_state as set_rng_state,
)
from torch_sinter._src.random import (
    set_rng_state_all as set_rng_state_all,
)
from torch_sinter._src.streams import (
    Event as Event,
)
from torch_sinter._src.streams import (
    Stream as Stream,
)
from torch_sinter._src.streams import (
    StreamContext as StreamContext,
)
from torch_sinter._src.streams import (
    current_stream as current_stream,
)
from torch_sinter._src.streams import (
    default_stream as default_stream,
)
from torch_sinter._src.streams import (
    set_stream as set_stream,
)
from torch_sinter._src.streams import (
    stream as stream,
)
from torch_sinter_autoload import registration
from torch_sinter_autoload.names import PUBLIC

Device = torch.device | str | int | None

__all__ = list(PUBLIC)


# ---- the device ----------------------------------------------------------------------------------
def is_available() -> bool:
    """Whether the library is where it should be. It is not loaded to find out."""
    return runtime.library_path().exists()


def device_count() -> int:
    return 1 if is_available() else 0


def init() -> None:
    """Load the library now instead of at the first use."""
    runtime.initialize()


def is_initialized() -> bool:
    return runtime.is_loaded()


def current_device() -> int:
    return 0


def _index(device: Device) -> int:
    """The index that `device` means; raises where it means another device than ours."""
    if device is None:
        return 0
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != runtime.NAME:
            raise ValueError(f"expected a {runtime.NAME} device, got {device}")
        device = 0 if device.index is None else device.index
    # -1 is what torch's own device guards pass for "stay where you are".
    if device not in (0, -1):
        raise RuntimeError(f"invalid device index {device}: there is one {runtime.NAME} device, {runtime.NAME}:0")
    return 0


def set_device(device: Device) -> None:
    _index(device)


def _exchange_device(device: int) -> int:
    _index(device)
    return 0


_maybe_exchange_device = _exchange_device


class device:
    """Context manager that selects the device; there is only one to select, so it only checks its argument."""

    def __init__(self, device: Device) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


class device_of(device):
    """Context manager that selects the device of a tensor or storage, if that is one of ours."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == runtime.NAME else None)


def synchronize(device: Device = None) -> None:
    """Run what was recorded, and wait for it. Does nothing before the first use."""
    _index(device)
    runtime.sync("torch.sinter.synchronize")


# ---- what it is ----------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    name: str
    total_memory: int
    multi_processor_count: int
    cpu_features: tuple[str, ...]
    type: str = runtime.NAME
    major: int = 1
    minor: int = 0


def get_device_properties(device: Device = None) -> DeviceProperties:
    _index(device)
    from torch_sinter._src import info

    return DeviceProperties(
        name=info.cpu_name(),
        total_memory=mem_get_info()[1],
        multi_processor_count=torch.get_num_threads(),
        cpu_features=tuple(runtime.call_json("_info")["cpu_features"]),
    )


def get_device_name(device: Device = None) -> str:
    _index(device)
    from torch_sinter._src import info

    return info.cpu_name()


def get_device_capability(device: Device = None) -> dict[str, Any]:
    """What torch.accelerator.get_device_capability says of the device."""
    _index(device)
    runtime.initialize()
    return torch.accelerator.get_device_capability()


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def is_current_stream_capturing() -> bool:
    """Always False: a step is captured by torch_sinter, not by a stream."""
    return False


def ipc_collect() -> None:
    """Nothing to collect: tensors are not shared between processes by address."""


# ---- joining torch.sinter ------------------------------------------------------------------------
_PRIVATE = ("_exchange_device", "_maybe_exchange_device")


def _fill(module: Any) -> None:
    for name in (*__all__, *_PRIVATE):
        setattr(module, name, globals()[name])
    module.__all__ = list(__all__)


_fill(registration.device_module)
