"""Trains a character GPT and an image classifier on eager CPU and on sinter, side by side, and prints one table.

    python examples/demo.py            (or: make demo)

The two devices take turns, one step each, in one process, so that whatever else the machine does meets both alike. First-step time
and peak memory come from a fresh process for each row, because a process keeps its peak and its warm caches. The exit status is
non-zero when a model does not learn or the losses of the two devices drift apart.
"""

import argparse
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

# Per script: steps, steps of the fresh process, the largest ratio of last to first loss that counts as learning, and how far the two
# losses of one step may lie apart. Both devices run the same kernels except in the optimizer, where the defaults differ (one loop per
# parameter on the CPU, a multi-tensor update on sinter) and round differently by one unit in the last place; training amplifies that.
SCRIPTS = {
    "train_gpt": {"title": "char GPT", "steps": 200, "fresh_steps": 20, "learned": 0.7, "tolerance": 0.02},
    "train_digits": {"title": "digits net", "steps": 300, "fresh_steps": 50, "learned": 0.2, "tolerance": 0.02},
}
TAIL = 10  # losses are averaged over this many steps at each end


def cpu_name():
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def package_version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def machine_line():
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cpu_name()}, {cores} cores, {torch.get_num_threads()} threads, Python {platform.python_version()}, "
        f"torch {torch.__version__}, torch_sinter {package_version('torch_sinter')}"
    )


def status_kib(field):
    """A field of /proc/self/status in KiB. VmHWM is the peak of this very process image; ru_maxrss would include its parent's."""
    with open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")


def fresh_run(script, device, steps):
    """Runs in a process of its own: prints seconds to the first loss, resident KiB before the model exists, and the peak in KiB."""
    import importlib

    module = importlib.import_module(script)
    data = module.read_text() if hasattr(module, "read_text") else module.read_images()
    before = status_kib("VmRSS")
    start = time.perf_counter()
    first = None
    for loss in module.train(module.build(), device, steps, data):
        value = loss.item()
        if first is None:
            first = time.perf_counter() - start
    if value != value:
        raise SystemExit(f"{script} on {device}: the loss is not a number")
    print(first, before, status_kib("VmHWM"))


def measure_fresh(script, device, steps):
    command = [sys.executable, os.path.abspath(__file__), "--fresh", script, device, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    first, before, peak = done.stdout.split()[-3:]
    return float(first), int(before) / 1024, int(peak) / 1024


class Bar:
    """A rich progress bar in a terminal; in a pipe, a line at each quarter of the way."""

    def __init__(self, console, title, total):
        self.console, self.title, self.total, self.done = console, title, total, 0
        self.rich = None
        if console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self.rich = Progress(
                TextColumn("{task.description:<16}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=console,
            )

    def __enter__(self):
        if self.rich:
            self.rich.start()
            self.task = self.rich.add_task(self.title, total=self.total, note="")
        return self

    def __exit__(self, *error):
        if self.rich:
            self.rich.stop()

    def advance(self, note):
        self.done += 1
        if self.rich:
            self.rich.update(self.task, completed=self.done, note=note)
        elif self.done * 4 // self.total > (self.done - 1) * 4 // self.total:
            self.console.print(f"{self.title}: {self.done}/{self.total}, {note}")


def compare(console, script, devices, steps):
    """Trains on all devices, one step each in turn. Returns by device: milliseconds and losses of all steps, accuracy."""
    import importlib

    module = importlib.import_module(script)
    data = module.read_text() if hasattr(module, "read_text") else module.read_images()
    models = {device: module.build() for device in devices}
    runs = {device: module.train(models[device], device, steps, data) for device in devices}
    times, losses = {d: [] for d in devices}, {d: [] for d in devices}
    with Bar(console, SCRIPTS[script]["title"], steps) as bar:
        for step in range(steps):
            # Who goes first alternates: the second finds the caches in another state than the first.
            for device in devices if step % 2 == 0 else devices[::-1]:
                start = time.perf_counter()
                loss = next(runs[device])
                losses[device].append(loss.item())
                times[device].append((time.perf_counter() - start) * 1e3)
            bar.advance("loss " + "  ".join(f"{device} {losses[device][-1]:.4f}" for device in devices))
    extra = {d: module.accuracy(models[d], d, data) for d in devices} if hasattr(module, "accuracy") else {}
    return times, losses, extra


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="cpu,sinter", help="comma-separated; the first is the one to compare with")
    parser.add_argument("--steps", type=int, help="steps per script instead of its own number (too few do not learn)")
    parser.add_argument("--fresh", nargs=3, metavar=("SCRIPT", "DEVICE", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fresh:
        return fresh_run(options.fresh[0], options.fresh[1], int(options.fresh[2]))

    from rich import box
    from rich.console import Console
    from rich.table import Table

    # In a pipe there is no width to fit.
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=110, highlight=False)
    devices = options.devices.split(",")
    began = time.perf_counter()
    console.print(machine_line())
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("model", no_wrap=True)
    table.add_column("device", no_wrap=True)
    heads = ("ms a\nstep", "times\neager", "first\nstep", "peak\nmemory", "loss at\nstart", "loss at\nend")
    for head in (*heads, "largest\ndiff."):
        table.add_column(head, justify="right", no_wrap=True)
    problems, notes = [], []
    for script, about in SCRIPTS.items():
        fresh = {}
        with Bar(console, "fresh processes", len(devices)) as bar:
            for device in devices:
                fresh[device] = measure_fresh(script, device, about["fresh_steps"])
                bar.advance(f"{about['title']} on {device}: first step {fresh[device][0]:.2f} s")
        times, losses, accuracy = compare(console, script, devices, options.steps or about["steps"])
        base = devices[0]
        for row, device in enumerate(devices):
            ms = statistics.median(times[device])
            start, end = statistics.fmean(losses[device][:TAIL]), statistics.fmean(losses[device][-TAIL:])
            difference = max(abs(a - b) for a, b in zip(losses[device], losses[base], strict=True))
            first, _, peak = fresh[device]
            table.add_row(
                about["title"] if row == 0 else "",
                "eager" if device == "cpu" else device,
                f"{ms:.2f}",
                f"{ms / statistics.median(times[base]):.2f}" if row else "",
                f"{first:.2f} s",
                f"{peak:.0f} MiB",
                f"{start:.4f}",
                f"{end:.4f}",
                ("equal" if difference == 0 else f"{difference:.1e}") if row else "",
            )
            if not end <= about["learned"] * losses[device][0]:
                problems.append(
                    f"{about['title']} on {device} does not learn: loss {losses[device][0]:.4f} -> {end:.4f}"
                )
            if not difference <= about["tolerance"]:
                problems.append(
                    f"{about['title']}: losses of {device} and {base} differ by {difference:.3g}, allowed {about['tolerance']}"
                )
        table.add_section()
        imports = fresh[base][1]
        if accuracy:
            shown = ", ".join(f"{device} {accuracy[device]:.3f}" for device in devices)
            notes.append(f"Accuracy of the {about['title']} on images kept out of the training: {shown}.")
    console.print(table)
    notes += [
        "ms a step: median over all steps, the devices taking turns in one process, each step ending with loss.item().",
        "First step: a fresh process, from building the model to its first loss.",
        f"Peak memory: VmHWM of that process; Python, libraries and data alone take {imports:.0f} MiB of it.",
        f"Losses: mean of {TAIL} steps. Largest diff.: of the two losses of one step, over all steps.",
        "Dropout is 0: random streams differ between devices by design.",
    ]
    if "sinter" in devices:
        import torch_sinter

        counters = torch_sinter.metrics.counters()
        shown = ("ops_recorded", "graphs_ended", "graphs_planned", "graph_cache_hits", "syncs", "fallbacks")
        notes.append("sinter: " + ", ".join(f"{n.replace('_', ' ')} {counters.get(n, 0):,}" for n in shown) + ".")
    for note in notes:
        console.print(note)
    console.print(f"{time.perf_counter() - began:.0f} s in all")
    for problem in problems:
        print(f"demo: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
