"""Straight-line programs over tensors, run on the CPU and on the device.

A program is a list of Python statements. Each sees `torch`, the device as `D`, its own variables and the helpers
below; one that raises is skipped, and must raise the same exception on both sides. After the last statement every
variable that is left must be equal: value, size, stride, offset, dtype, version counter, and which ones share memory.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import torch

from support import compare
from support import device as under_test


@dataclasses.dataclass
class Trace:
    device: str
    events: list[tuple[int, str, Any]] = dataclasses.field(default_factory=list)  # statement, what, value
    variables: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    line: int = 0

    def note(self, what: str, value: Any) -> None:
        self.events.append((self.line, what, value))


def data(seed: int, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers on the CPU: sums of them are exact in any order."""
    values = torch.randint(0, 2 if dtype is torch.bool else 9, size, generator=torch.Generator().manual_seed(seed))
    if dtype.is_complex:
        return torch.complex(values.float(), values.flip(-1).float() if size else values.float()).to(dtype)
    return (values if dtype in (torch.bool, torch.uint8) else values - 4).to(dtype)


def helpers(trace: Trace) -> dict[str, Any]:
    """What a statement may call."""
    on_device = trace.device != "cpu"

    def read(t: torch.Tensor) -> None:
        trace.note("read", t.detach().cpu().clone())

    def item(value: Any) -> None:
        trace.note("item", value.item() if isinstance(value, torch.Tensor) else value)

    def sync() -> None:
        if on_device:
            under_test.sync("fuzz")

    def end_graph() -> None:
        if on_device:
            torch.ops.sinter._end_graph("fuzz")

    return {
        "torch": torch,
        "D": trace.device,
        "data": data,
        "new": lambda *a: data(*a).to(trace.device, copy=True),
        "upload": lambda t: t.to(trace.device, copy=True),
        "download": lambda t: t.detach().to("cpu", copy=True),
        "read": read,
        "item": item,
        "sync": sync,
        "end_graph": end_graph,
    }


def execute(statement: str, scope: dict[str, Any], trace: Trace) -> bool:
    """Runs one statement; an exception becomes an event."""
    try:
        exec(statement, scope)
        return True
    except Exception as error:
        trace.note("raises", (type(error), str(error)))
        return False


def run(program: list[str], device: str) -> Trace:
    trace = Trace(device)
    scope = helpers(trace)
    fixed = set(scope) | {"__builtins__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for trace.line, statement in enumerate(program):
            execute(statement, scope, trace)
    trace.variables = {
        name: value for name, value in scope.items() if name not in fixed and isinstance(value, torch.Tensor)
    }
    return trace


def differences(want: Trace, got: Trace) -> list[str]:
    """What the second run did otherwise than the first."""
    found = []
    for a, b in zip(want.events, got.events, strict=False):
        if a[:2] != b[:2]:
            return [*found, f"line {min(a[0], b[0])}: {_event(a)} against {_event(b)}"]
        if a[1] == "raises" and a[2][0] is not b[2][0]:
            found.append(f"line {a[0]}: {_event(a)} against {_event(b)}")
        elif a[1] != "raises":
            found += compare.differences(a[2], b[2], f"line {a[0]}", storage=True)
    if len(want.events) != len(got.events):
        side, longer = ("CPU", want) if len(want.events) > len(got.events) else ("device", got)
        extra = longer.events[min(len(want.events), len(got.events))]
        return [*found, f"line {extra[0]}: {_event(extra)} on the {side} only"]
    if list(want.variables) != list(got.variables):
        return [*found, f"variables {sorted(want.variables)} against {sorted(got.variables)}"]
    for name, a in want.variables.items():
        b = got.variables[name]
        if not a.requires_grad and a._version != b._version:
            found.append(f"{name}: version {a._version} != {b._version}")
        found += compare.differences(a, b, name, storage=True)
    sharing = [compare.sharing(list(t.variables.values())) for t in (want, got)]
    if sharing[0] != sharing[1]:
        found.append(f"memory shared by {list(want.variables)}: {sharing[0]} against {sharing[1]}")
    return found


def _event(event: tuple[int, str, Any]) -> str:
    _line, what, value = event
    return f"raises {value[0].__name__}({' '.join(value[1].split())[:120]})" if what == "raises" else what


def disagreement(program: list[str]) -> list[str]:
    """Differences between the CPU and the device; an exception while comparing is one as well."""
    want = run(program, "cpu")
    got = run(program, under_test.NAME)
    try:
        found = differences(want, got)
    except Exception as error:
        found = [f"comparing raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"]
    try:
        under_test.sync("end of program")
    except Exception as error:
        found.append(f"left an error behind: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return found


def shrink(program: list[str]) -> list[str]:
    """Fewer statements that still disagree: drops ever smaller pieces.

    A piece stays when without it the CPU raises where it did not before: that would be another disagreement.
    """
    lines = list(enumerate(program))
    raising = {line for line, what, _ in run(program, "cpu").events if what == "raises"}

    def disagrees(shorter: list[tuple[int, str]]) -> bool:
        text = [statement for _, statement in shorter]
        now = {shorter[line][0] for line, what, _ in run(text, "cpu").events if what == "raises"}
        return now <= raising and bool(disagreement(text))

    piece = max(1, len(lines) // 2)
    while True:
        start, dropped = 0, False
        while start < len(lines):
            shorter = lines[:start] + lines[start + piece :]
            if shorter and disagrees(shorter):
                lines, dropped = shorter, True
            else:
                start += piece
        if piece == 1 and not dropped:
            return [statement for _, statement in lines]
        piece = max(1, piece // 2)
