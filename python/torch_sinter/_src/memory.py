"""Memory of the device, in the words of torch.cuda. The numbers are bytes; device memory is host memory."""

from __future__ import annotations

import os
from typing import Any

import torch

from torch_sinter._src import runtime


def _stats() -> dict[str, int]:
    """The allocator's figures; all zero before the first use, which asking is not."""
    if not runtime.is_loaded():
        return {}
    return runtime.call_json("_memory_stats")


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors occupy now. Pending results count once they have memory."""
    return _stats().get("allocated", 0)


def max_memory_allocated(device: Any = None) -> int:
    """The most that memory_allocated has been since the start or reset_peak_memory_stats."""
    return _stats().get("peak_allocated", 0)


def memory_reserved(device: Any = None) -> int:
    """Bytes taken from the system: allocated ones and those kept for the next request."""
    return _stats().get("reserved", 0)


def max_memory_reserved(device: Any = None) -> int:
    return _stats().get("peak_reserved", 0)


def memory_stats(device: Any = None) -> dict[str, int]:
    """The figures under torch.cuda's names, and the allocator's own besides."""
    stats = _stats()
    names = {
        "allocated_bytes.all.current": "allocated",
        "allocated_bytes.all.peak": "peak_allocated",
        "reserved_bytes.all.current": "reserved",
        "reserved_bytes.all.peak": "peak_reserved",
    }
    return {**{theirs: stats.get(ours, 0) for theirs, ours in names.items()}, **stats}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    stats = memory_stats()
    if abbreviated:
        stats = {name: n for name, n in stats.items() if "." not in name}
    width = max(map(len, stats))
    return "\n".join(f"{name.ljust(width)}  {n:>20,}" for name, n in stats.items())


def reset_peak_memory_stats(device: Any = None) -> None:
    if runtime.is_loaded():
        torch.ops.sinter._memory_reset_peak()


def reset_accumulated_memory_stats(device: Any = None) -> None:
    if runtime.is_loaded():
        torch._C._accelerator_resetAccumulatedStats(0)


def empty_cache() -> None:
    """Give back what the allocator keeps for later. Does nothing before the first use."""
    if runtime.is_loaded():
        torch.ops.sinter._empty_cache()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes: of the machine, or of the limit that SINTER_MEMORY_LIMIT sets."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = _available()
    stats = _stats()
    limit = stats.get("limit", 0)
    if limit:
        total = min(total, limit)
        free = min(free, max(0, limit - stats["allocated"]))
    return free, total


def _available() -> int:
    """What the kernel thinks can still be had without swapping (page cache included)."""
    try:
        with open("/proc/meminfo") as meminfo:
            for line in meminfo:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
