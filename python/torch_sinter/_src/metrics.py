"""What the device did: counters, timers, and every sync with its cause.

    torch_sinter.metrics.reset()
    train()
    print(torch_sinter.metrics.report())

The numbers are the library's; this module only arranges them. Reading them neither syncs nor loads the library.
"""

from __future__ import annotations

from typing import Any, TypedDict

import torch

from torch_sinter._src import runtime

__all__ = ["as_dict", "compiles", "counters", "fallbacks", "report", "reset", "summary", "syncs", "timers"]


class Timer(TypedDict):
    count: int
    seconds: float


class Sync(TypedDict):
    cause: str
    line: str
    count: int


class Fallback(TypedDict):
    op: str
    reason: str
    count: int


def as_dict() -> dict[str, Any]:
    """Everything, as plain values: counters, timers, syncs, fallbacks, memory, compiles."""
    if not runtime.is_loaded():
        return {"counters": {}, "timers": {}, "syncs": [], "fallbacks": [], "memory": {}, "compiles": 0}
    return {
        **runtime.call_json("_metrics"),
        "memory": runtime.call_json("_memory_stats"),
        "compiles": compiles(),
    }


def counters() -> dict[str, int]:
    """Counts since the last reset, by name. A name that was never counted reads as absent or 0."""
    return as_dict()["counters"]


def timers() -> dict[str, Timer]:
    return as_dict()["timers"]


def syncs() -> list[Sync]:
    """What made the host wait, how often, and on which line (with SINTER_TRACE_LINES=1), most frequent first."""
    return sorted(as_dict()["syncs"], key=lambda sync: -sync["count"])


def fallbacks() -> list[Fallback]:
    """Operators that ran at once instead of being recorded, each with the reason, most frequent first."""
    return sorted(as_dict()["fallbacks"], key=lambda fallback: -fallback["count"])


def compiles() -> int:
    """Programs made so far: graphs that were planned. A training loop in its stride makes no new ones."""
    return torch.ops.sinter._compiles() if runtime.is_loaded() else 0


def reset() -> None:
    """Set counters, timers, syncs and fallbacks to zero. Memory statistics and compiles stay."""
    if runtime.is_loaded():
        torch.ops.sinter._metrics_reset()


def summary() -> str:
    """The line that SINTER_REPORT=1 prints at exit."""
    count = counters()
    return (
        f"torch-sinter: {count.get('optimizer_steps', 0):,} steps, {count.get('graphs_ended', 0):,} graphs "
        f"({compiles():,} planned), {count.get('syncs', 0):,} syncs"
    )


def report() -> str:
    """A text table of everything that is not zero."""
    data = as_dict()
    sections = [
        ("counters", ["name", "count"], [[name, f"{n:,}"] for name, n in sorted(data["counters"].items()) if n]),
        (
            "timers",
            ["name", "count", "total ms", "mean us"],
            [_timer_row(*item) for item in sorted(data["timers"].items())],
        ),
        ("syncs", ["cause", "count", "line"], [[s["cause"], f"{s['count']:,}", s["line"]] for s in syncs()]),
        ("ran at once", ["op", "count", "reason"], [[f["op"], f"{f['count']:,}", f["reason"]] for f in fallbacks()]),
        ("memory", ["name", "bytes"], [[name, f"{n:,}"] for name, n in data["memory"].items()]),
    ]
    return "\n\n".join([summary(), *(_table(*section) for section in sections if section[2])])


def _timer_row(name: str, timer: Timer) -> list[str]:
    mean = timer["seconds"] / timer["count"] * 1e6 if timer["count"] else 0.0
    return [name, f"{timer['count']:,}", f"{timer['seconds'] * 1e3:,.3f}", f"{mean:,.2f}"]


def _table(title: str, head: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as their contents; all but the first and a last text column are right-aligned numbers."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        parts = []
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            number = index > 0 and head[index] not in ("line", "reason")
            parts.append(cell.rjust(width) if number else cell.ljust(width))
        return "  " + "  ".join(parts).rstrip()

    return "\n".join([f"{title}", line(head), *(line(row) for row in rows)])
