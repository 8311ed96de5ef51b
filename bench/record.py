"""What recording one op costs, beside the same call run eagerly on tiny CPU tensors.

    python bench/record.py [--device sinter] [--rounds 40]

A round calls one op `CALLS` times in a Python loop; what is recorded runs afterwards, outside the clock. So a figure
holds everything that the calling thread pays for a call: Python's call and argument parsing, the dispatcher, shape
inference, making and freeing the result tensor, hashing, appending, the lock, and the loop itself. Devices take turns
round by round. The eager figure also holds the kernel on a 4x4 tensor, without which eager has no result.
The last lines give the cost of each further tensor: the slope over calls that have 1 to 16 results.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

import machine

CALLS = 200  # fits into one graph, so that no graph ends inside the clock
SIZE = 4


def cases(device: str) -> dict[str, Callable[[], object]]:
    generator = torch.Generator().manual_seed(0)

    def tensor(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=generator).to(device)

    x, y, bias, weight = tensor(SIZE, SIZE), tensor(SIZE, SIZE), tensor(SIZE), tensor(SIZE)
    many, others = [tensor(SIZE) for _ in range(4)], [tensor(SIZE) for _ in range(4)]
    ops = torch.ops.aten
    return {
        "add": lambda: torch.add(x, y),
        "add (number)": lambda: torch.add(x, 0.5),
        "add_": lambda: x.add_(y),
        "mm": lambda: torch.mm(x, y),
        "addmm": lambda: torch.addmm(bias, x, y),
        "gelu": lambda: torch.nn.functional.gelu(x),
        "sum": lambda: torch.sum(x),
        "sum (dim)": lambda: torch.sum(x, 1),
        "native_layer_norm": lambda: torch.native_layer_norm(x, (SIZE,), weight, bias, 1e-5),
        "_foreach_add_ (4)": lambda: torch._foreach_add_(many, others),
        "view + transpose": lambda: x.view(SIZE * SIZE).view(SIZE, SIZE).t(),
        "aten.add (torch.ops)": lambda: ops.add.Tensor(x, y),
    }


def lists(device: str) -> dict[str, Callable[[int], Callable[[], object]]]:
    """Ops on n tensors, for the slope."""

    def tensors(n: int) -> list[torch.Tensor]:
        return [torch.ones(SIZE).to(device) for _ in range(n)]

    def foreach_add(n: int):
        a, b = tensors(n), tensors(n)
        return lambda: torch._foreach_add(a, b)

    def foreach_add_(n: int):
        a, b = tensors(n), tensors(n)
        return lambda: torch._foreach_add_(a, b)

    def foreach_mul_number(n: int):
        a = tensors(n)
        return lambda: torch._foreach_mul(a, 2.0)

    return {
        "_foreach_add_ (2 operands, written in place)": foreach_add_,
        "_foreach_mul (1 operand, 1 result)": foreach_mul_number,
        "_foreach_add (2 operands, 1 result)": foreach_add,
    }


def finish(device: str) -> None:
    if device == "sinter":
        torch.ops.sinter._sync("bench")


def clock(call: Callable[[], object], device: str, repeat: int = CALLS) -> float:
    """Microseconds a call."""
    start = time.perf_counter_ns()
    for _ in range(repeat):
        call()
    took = time.perf_counter_ns() - start
    finish(device)
    return took / repeat / 1e3


def interleaved(calls: dict[str, Callable[[], object]], rounds: int, repeat: int = CALLS) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {device: [] for device in calls}
    for device, call in calls.items():  # warm: shapes, plans
        for _ in range(3):
            clock(call, device, repeat)
    for _ in range(rounds):
        for device, call in calls.items():
            times[device].append(clock(call, device, repeat))
    return times


def measure(device: str, rounds: int) -> tuple[list[list[str]], list[list[str]]]:
    torch.set_grad_enabled(False)
    rows, slopes = [], []
    lazy, eager = cases(device), cases("cpu")
    for name in lazy:
        times = interleaved({device: lazy[name], "cpu": eager[name]}, rounds)
        ours, theirs = times[device], times["cpu"]
        rows.append(
            [
                name,
                f"{statistics.median(ours):.2f}",
                f"{min(ours):.2f}",
                f"{statistics.median(theirs):.2f}",
                f"{min(theirs):.2f}",
            ]
        )
    counts = (1, 2, 4, 8, 16)
    for name, make in lists(device).items():
        # As many tensors to a graph whatever their number in a call, so that all graphs are of one size.
        medians = [
            statistics.median(interleaved({device: make(n)}, max(rounds, 5), CALLS // n)[device]) for n in counts
        ]
        slope = statistics.linear_regression(counts, medians).slope
        slopes.append([name, f"{medians[0]:.2f}", f"{medians[-1]:.2f}", f"{slope:.2f}"])
    return rows, slopes


def report(device: str = "sinter", rounds: int = 40) -> str:
    rows, slopes = measure(device, rounds)
    return "\n".join(
        [
            f"Recording, microseconds a call (median and least of {rounds} rounds of {CALLS} calls), no autograd",
            machine.table(["op", f"{device} med", "min", "eager CPU med", "min"], rows),
            "",
            "Each further tensor, microseconds",
            machine.table(["op", "1 tensor", "16 tensors", "per further tensor"], slopes),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="sinter")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print(machine.line())
    print(report(options.device, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
