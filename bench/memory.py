"""Whether memory and the number of graphs stay bounded in long runs.

    python bench/memory.py [steps round_trips ...] [--device sinter]

Each case runs in a process of its own and samples VmRSS at even distances after a warm-up, less what the program itself
keeps. The slope is the median of the slopes between all pairs of samples (Theil-Sen): a leak shows in all of them, one
step of the C library's heap in few. Growth is that slope over all iterations. Exit status 1 when it is more than 2 %,
or when graphs kept being planned after the warm-up.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn as nn

import machine
import workloads

FLAT = 0.02


class Run(NamedTuple):
    iterations: int
    body: Callable[[int], object]
    kept: Callable[[], int] = lambda: 0  # bytes that the program itself holds on to


def trainer(workload: str, device: str) -> Callable[[int], torch.Tensor]:
    torch.manual_seed(0)
    case = workloads.ALL[workload]()
    model = case.model.to(device)
    optimizer = case.optimizer(model.parameters())

    def step(seed: int) -> torch.Tensor:
        loss = case.loss(model, *(t.to(device) for t in case.batch(seed)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def steps(device: str) -> Run:
    """1,000 training steps, each reading its loss"""
    step = trainer("mlp_small", device)
    return Run(1000, lambda i: step(i).item())


def steps_unread(device: str) -> Run:
    """1,000 training steps that read nothing"""
    return Run(1000, trainer("mlp_small", device))


def steps_keep_losses(device: str) -> Run:
    """1,000 training steps that keep each loss tensor"""
    step, losses = trainer("mlp_small", device), []
    return Run(1000, lambda i: losses.append(step(i)))


def steps_two_shapes(device: str) -> Run:
    """300 training steps, every tenth on a smaller batch"""
    torch.manual_seed(0)
    model = workloads.mlp_small().model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    batches = workloads.classes((64, 32), 10)

    def step(seed: int) -> float:
        x, y = (t[: 40 if seed % 10 == 9 else 64].to(device) for t in batches(seed))
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return Run(300, step)


def round_trips(device: str) -> Run:
    """100 times .to(device).to("cpu") of a module of 25 MiB"""
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)])

    def trip(_: int) -> None:
        model.to(device).to("cpu")
        gc.collect()

    return Run(100, trip)


def validation(device: str) -> Run:
    """500 batches of validation that keep every prediction and read nothing"""
    torch.manual_seed(0)
    case = workloads.mlp_large()
    model, kept = case.model.eval().to(device), []
    # Made once: fresh CPU batches between tensors that stay fragment the C library's heap, on eager CPU too.
    batches = [case.batch(seed)[0] for seed in range(8)]

    def body(seed: int) -> None:
        with torch.no_grad():
            kept.append(model(batches[seed % len(batches)].to(device)))

    return Run(500, body, lambda: sum(t.nbytes for t in kept))


def generate(device: str) -> Run:
    """20 times GPT-2 generate of 40 tokens (random weights)"""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=200, n_positions=64, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=199
    )
    model = GPT2LMHeadModel(config).eval().to(device)

    def body(seed: int) -> None:
        start = torch.randint(1, 199, (1, 8), generator=torch.Generator().manual_seed(seed)).to(device)
        model.generate(
            start,
            attention_mask=torch.ones_like(start),
            max_new_tokens=40,
            min_new_tokens=40,
            do_sample=False,
            pad_token_id=0,
        )

    return Run(20, body)


CASES = {
    case.__name__: case
    for case in (steps, steps_unread, steps_keep_losses, steps_two_shapes, round_trips, validation, generate)
}


def planned(device: str) -> int:
    return torch.ops.sinter._compiles() if device == "sinter" else 0


def measure(name: str, device: str) -> dict:
    run = CASES[name](device)
    every = max(run.iterations // 20, 1)
    warm = run.iterations // 5
    resident, at, kept, planned_warm = [], [], [], 0
    for i in range(run.iterations):
        run.body(i)
        if i + 1 == warm:
            planned_warm = planned(device)
        if i + 1 >= warm and (i + 1) % every == 0:
            resident.append(machine.resident_kib() / 1024)
            at.append(i + 1)
            kept.append(run.kept() / 2**20)
    own = list(zip(at, (r - k for r, k in zip(resident, kept, strict=True)), strict=True))
    slope = statistics.median((y - b) / (x - a) for (a, b), (x, y) in itertools.combinations(own, 2))
    return {
        "case": name,
        "about": CASES[name].__doc__,
        "first": resident[0],
        "last": resident[-1],
        "kept": kept[-1],
        "growth": slope * run.iterations / own[0][1],
        "slope_kib": slope * 1024,
        "planned_warm": planned_warm,
        "planned": planned(device),
    }


def run_all(names: list[str], device: str) -> tuple[str, list[str]]:
    rows, problems = [], []
    for name in names:
        command = [sys.executable, str(Path(__file__)), name, "--device", device, "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            problems.append(f"{name} failed, {machine.reason(done)}")
            continue
        r = json.loads(done.stdout.splitlines()[-1])
        rows.append(
            [
                name,
                r["about"],
                f"{r['first']:.1f}",
                f"{r['last']:.1f}",
                f"{r['kept']:.1f}",
                f"{r['growth'] * 100:+.2f} %",
                f"{r['slope_kib']:+.2f}",
                f"{r['planned_warm']}",
                f"{r['planned']}",
            ]
        )
        if r["growth"] > FLAT:
            problems.append(f"{name}: resident memory grew by {r['growth']:.1%}")
        if r["planned"] > r["planned_warm"]:
            problems.append(f"{name}: {r['planned'] - r['planned_warm']} graphs planned after the warm-up")
    head = ["case", "what", "MiB warm", "MiB end", "kept", "own growth", "KiB/iter", "planned warm", "planned end"]
    return machine.table(head, rows, left=2), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--device", default="sinter")
    parser.add_argument("--json", action="store_true", help="one case, in this process, as a line of JSON")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if options.json:
        print(json.dumps(measure(options.cases[0], options.device)))
        return 0
    print(machine.line())
    print("Resident memory and planned graphs over long runs (warm: after a fifth of the iterations)")
    text, problems = run_all(options.cases or list(CASES), options.device)
    print(text)
    for problem in problems:
        print(f"memory: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
