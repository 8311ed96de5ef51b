"""The project's benchmarks, one after the other, as one report (make bench).

    python bench/run.py [--quick] [--output FILE]

Nothing else should run on the machine meanwhile: eager with two threads slows several times when another process takes
a core. The report names the machine and the commit, and each part the command that repeats it alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import machine

HERE = Path(__file__).resolve().parent

# arguments; those of a quick look
PARTS = (
    (["record.py"], ["--rounds", "10"]),
    (["steps.py"], ["--steps", "10"]),
    (["steps.py", "--bf16"], ["--steps", "10"]),
    (["steps.py", "--foreach", "off"], ["--steps", "10"]),
    (["steps.py", "--async"], ["--steps", "10"]),
    (["steps.py", "--sync", "20", "--steps", "200", "mlp_small"], ["--steps", "60"]),
    (["memory.py"], ["steps", "round_trips"]),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps and cases: to see that all runs")
    parser.add_argument("--output", default=str(HERE.parent / "build" / "bench.txt"), help="also written here")
    options = parser.parse_args()
    text, failed = [machine.line()], []
    print(text[0], flush=True)
    for arguments, quick in PARTS:
        command = [*arguments, *(quick if options.quick else [])]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *map(str, [HERE / command[0], *command[1:]])], capture_output=True, text=True
        )
        lines = done.stdout.splitlines()
        if lines and lines[0].startswith(machine.cpu_name()):  # said once above
            lines = lines[1:]
        part = "\n".join(["", f"$ python bench/{' '.join(command)}", *lines, done.stderr.rstrip()]).rstrip()
        print(f"{part}\n({time.perf_counter() - start:.0f} s)", flush=True)
        text.append(part)
        if done.returncode != 0:
            failed.append(command[0])
    path = Path(options.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n")
    print(f"\nwritten to {path}")
    if failed:
        print(f"bench: {', '.join(failed)} reported a problem", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
