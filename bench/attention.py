"""Attention's own kernels beside PyTorch's: the ratio of their times, forward and backward, over shapes and types.

    SINTER_ENGINE=native python bench/attention.py [--threads 2] [--seconds 0.3] [--dtype float32 bfloat16]
                                                   [--shape 16,4,128,128,64 ...]

The two take turns in one process. A sample of ours is some independent calls recorded and run together, so that
recording is part of it; one of PyTorch's is as many eager calls. Ratios below 1 are in our favour. The rule in
src/torch/kernels/attention.cpp that leaves few queries to PyTorch's kernel was read from this table.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import machine
import torch_sinter  # noqa: F401

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

# (batch, heads, queries, keys, depth)
SHAPES = (
    (8, 8, 1, 256, 64),
    (8, 8, 4, 64, 64),
    (8, 8, 8, 8, 64),
    (8, 8, 16, 16, 64),
    (8, 8, 16, 256, 64),
    (8, 8, 32, 32, 64),
    (8, 8, 64, 64, 64),
    (16, 4, 128, 128, 64),
    (8, 8, 128, 128, 16),
    (8, 8, 128, 128, 32),
    (4, 8, 128, 128, 128),
    (4, 4, 128, 128, 256),
    (2, 3, 127, 127, 40),
    (1, 1, 128, 128, 64),
    (8, 12, 512, 512, 64),
    (2, 4, 512, 512, 128),
    (1, 4, 64, 1024, 64),
    (1, 4, 1024, 64, 64),
    (1, 8, 2048, 2048, 64),
    (1, 2, 4096, 4096, 64),
)


def inputs(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key, value and a gradient as projections leave them: [batch, rows, heads, depth] in memory."""
    batch, heads, queries, keys, depth = shape
    random = torch.Generator().manual_seed(0)

    def noise(rows: int) -> torch.Tensor:
        return torch.randn(batch, rows, heads, depth, generator=random).to(dtype).transpose(1, 2)

    return [noise(queries), noise(keys), noise(keys), noise(queries)]


def calls(tensors: list[torch.Tensor], causal: bool, device: str) -> tuple[Callable, Callable]:
    query, key, value, grad = (t.to(device) for t in tensors)
    out, logsumexp = FORWARD(query, key, value, 0.0, causal)
    return (
        lambda: FORWARD(query, key, value, 0.0, causal),
        lambda: BACKWARD(grad, query, key, value, out, logsumexp, 0.0, causal),
    )


def seconds(call: Callable, count: int, device: str) -> float:
    start = time.perf_counter()
    results = [call() for _ in range(count)]
    if device != "cpu":
        torch.ops.sinter._sync("bench")
    spent = time.perf_counter() - start
    del results
    return spent / count


def compare(theirs: Callable, ours: Callable, budget: float) -> tuple[float, float, float]:
    """Milliseconds of PyTorch's and of ours, least of all samples, and the median ratio of neighbouring samples."""
    sides = ((theirs, "cpu"), (ours, "sinter"))
    for call, device in sides * 3:
        once = seconds(call, 1, device)
    count = max(1, min(16, int(2e-3 / once)))
    for call, device in sides:
        seconds(call, count, device)
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times[0]) < 5:
        for (call, device), kept in zip(sides, times, strict=True):
            kept.append(seconds(call, count, device))
    ratios = [b / a for a, b in zip(*times, strict=True)]
    return min(times[0]) * 1e3, min(times[1]) * 1e3, statistics.median(ratios)


def rows(shape: tuple[int, ...], dtype: torch.dtype, budget: float) -> list[list[str]]:
    lines = []
    for causal in (True, False):
        tensors = inputs(shape, dtype)
        cells = [str(dtype)[6:], ",".join(map(str, shape)), "causal" if causal else "full"]
        for theirs, ours in zip(calls(tensors, causal, "cpu"), calls(tensors, causal, "sinter"), strict=True):
            a, b, ratio = compare(theirs, ours, budget)
            cells += [f"{a:.3f}", f"{b:.3f}", f"{b / a:.2f}", f"{ratio:.2f}"]
        lines.append(cells)
    return lines


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--threads", type=int, default=torch.get_num_threads())
    p.add_argument("--seconds", type=float, default=0.3, help="for each comparison")
    p.add_argument("--dtype", nargs="*", default=["float32", "bfloat16", "float16"])
    p.add_argument("--shape", nargs="*", help="batch,heads,queries,keys,depth")
    options = p.parse_args()
    torch.set_num_threads(options.threads)
    shapes = [tuple(map(int, s.split(","))) for s in options.shape] if options.shape else SHAPES
    print(machine.line())
    print(f"Attention, {options.threads} threads: least ms of PyTorch's kernel and of ours, their ratio, median ratio")
    head = ["type", "shape", "", "fwd cpu", "sinter", "ratio", "median", "bwd cpu", "sinter", "ratio", "median"]
    lines = [line for d in options.dtype for s in shapes for line in rows(s, getattr(torch, d), options.seconds)]
    print(machine.table(head, lines, left=3))


if __name__ == "__main__":
    main()
