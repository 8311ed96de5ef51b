"""Training steps on sinter beside eager CPU: milliseconds, page faults, graphs, and whether the losses agree.

    python bench/steps.py [gpt lstm ...] [--bf16] [--sync 20] [--foreach off] [--async] [--steps 40]

The two take turns, one sample each, in one process per workload. A sample is `--sync` steps, the last of which reads
its loss. Ratios of one line are comparable; times of different machines or moments are not. A page fault is counted
where it happens in the process (ru_minflt), so both sides' own faults are their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import machine
import workloads

WARMUP = 5


def make_step(workload: str, device: str, bf16: bool, foreach: str) -> Callable[[int], torch.Tensor]:
    torch.manual_seed(0)
    case = workloads.ALL[workload]()
    model = case.model.to(device)
    optimizer = case.optimizer(model.parameters())
    if foreach != "default":
        for group in optimizer.param_groups:
            group["foreach"] = foreach == "on"

    def step(seed: int) -> torch.Tensor:
        batch = [t.to(device) for t in case.batch(seed)]
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = case.loss(model, *batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def measure(workload: str, devices: list[str], options: argparse.Namespace) -> dict:
    steps = {device: make_step(workload, device, options.bf16, options.foreach) for device in devices}
    first, times, minor, losses = {}, {d: [] for d in devices}, {d: [] for d in devices}, {d: [] for d in devices}
    for device, step in steps.items():
        start = time.perf_counter()
        losses[device].append(step(0).item())
        first[device] = time.perf_counter() - start
        for seed in range(1, WARMUP):
            losses[device].append(step(seed).item())
    before = _counters(devices)
    for sample in range(max(options.steps // options.sync, 3)):
        begin = WARMUP + sample * options.sync
        # Who goes first alternates: the second finds the caches in another state than the first.
        for device in devices if sample % 2 == 0 else devices[::-1]:
            faults_before, start = faults(), time.perf_counter()
            for seed in range(begin, begin + options.sync):
                loss = steps[device](seed)
            losses[device].append(loss.item())
            times[device].append((time.perf_counter() - start) * 1e3 / options.sync)
            minor[device].append((faults() - faults_before) / options.sync)
    after = _counters(devices)
    return {
        "workload": workload,
        "first_ms": {d: first[d] * 1e3 for d in devices},
        "ms": {d: statistics.median(times[d]) for d in devices},
        "ms_min": {d: min(times[d]) for d in devices},
        "faults": {d: statistics.median(minor[d]) for d in devices},
        "loss": {d: losses[d][-1] for d in devices},
        "difference": max(
            abs(a - b) / max(abs(b), 1e-30) for d in devices for a, b in zip(losses[d], losses[devices[0]], strict=True)
        ),
        "counters": {name: after[name] - before.get(name, 0) for name in after},
        "steps": len(times[devices[0]]) * options.sync,
    }


def _counters(devices: list[str]) -> dict[str, int]:
    if "sinter" not in devices:
        return {}
    return json.loads(torch.ops.sinter._metrics())["counters"]


def row(result: dict, devices: list[str]) -> list[str]:
    base = devices[0]
    cells = [result["workload"]]
    for device in devices:
        cells += [f"{result['ms'][device]:.2f}", f"{result['ms_min'][device]:.2f}", f"{result['faults'][device]:.0f}"]
    counters, steps = result["counters"], result["steps"]
    for device in devices[1:]:
        cells.append(f"{result['ms'][device] / result['ms'][base]:.3f}")
    cells.append("equal" if result["difference"] == 0 else f"{result['difference']:.1e}")
    for name in ("ops_recorded", "graphs_ended", "graphs_planned", "syncs"):
        cells.append(f"{counters[name] / steps:.4g}" if name in counters else "-")
    return cells


def report(names: list[str], arguments: list[str], devices: list[str], worker: bool) -> tuple[str, list[str]]:
    """Each workload in a process of its own: no other's caches, pools or plans. The table, and what failed."""
    rows, problems = [], []
    # For a process from its start: once a worker has run, its thread pool slows everything else in the process too.
    environment = {**os.environ, **({"SINTER_ASYNC": "1"} if worker else {})}
    for name in names:
        command = [sys.executable, str(Path(__file__)), name, "--json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            problems.append(f"{name} failed, {machine.reason(done)}")
            continue
        rows.append(row(json.loads(done.stdout.splitlines()[-1]), devices))
    head = ["workload"]
    for device in devices:
        head += [f"{device} ms", "min", "faults"]
    head += [f"{device}/{devices[0]}" for device in devices[1:]]
    head += ["loss diff", "ops", "graphs", "planned", "syncs"]
    return machine.table(head, rows), problems


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(workloads.ALL))
    p.add_argument("--bf16", action="store_true", help="under torch.autocast to bfloat16")
    p.add_argument("--sync", type=int, default=1, metavar="N", help="read the loss every N steps")
    p.add_argument("--steps", type=int, default=40, help="steps measured a device")
    p.add_argument(
        "--foreach",
        choices=("default", "on", "off"),
        default="default",
        help="the optimizer's implementation; by default each device takes its own, which round differently",
    )
    p.add_argument("--async", dest="worker", action="store_true", help="with the asynchronous worker (SINTER_ASYNC=1)")
    p.add_argument("--devices", default="cpu,sinter", help="comma-separated; ratios are to the first")
    p.add_argument("--json", action="store_true", help="one workload, in this process, as a line of JSON")
    return p


def main() -> int:
    options = parser().parse_args()
    names = options.workloads or list(workloads.ALL)
    unknown = set(names) - set(workloads.ALL)
    if unknown:
        raise SystemExit(f"no such workload: {', '.join(sorted(unknown))}; there are {', '.join(workloads.ALL)}")
    devices = options.devices.split(",")
    if options.json:
        print(json.dumps(measure(names[0], devices, options)))
        return 0
    passed = ["--sync", str(options.sync), "--steps", str(options.steps), "--foreach", options.foreach]
    passed += ["--devices", options.devices, *(["--bf16"] if options.bf16 else [])]
    print(machine.line())
    print(f"Training steps: {describe(options)}; ops, graphs, plans and syncs are per step")
    text, problems = report(names, passed, devices, options.worker)
    print(text)
    for problem in problems:
        print(f"steps: {problem}", file=sys.stderr)
    return 1 if problems else 0


def describe(options: argparse.Namespace) -> str:
    parts = ["bf16 autocast" if options.bf16 else "fp32", f"loss read every {options.sync} steps"]
    if options.foreach != "default":
        parts.append(f"foreach {options.foreach}")
    if options.worker:
        parts.append("asynchronous worker")
    return f"median ms of {options.steps} steps, " + ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
