"""The line that says where a figure comes from: processor, cores, versions, commit. No figure is printed without it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]


def cpu_name() -> str:
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def widest_vectors() -> str:
    flags = set()
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("flags"):
                flags = set(line.split())
                break
    names = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX BF16"}
    return ", ".join(name for flag, name in names.items() if flag in flags) or "no AVX2"


def commit() -> str:
    try:
        git = ["git", "-C", str(ROOT)]
        name = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True)
        # bench/ and docs/ cannot change what is measured
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "src", "include", "python", "CMakeLists.txt", "cmake"],
            capture_output=True,
            text=True,
            check=True,
        )
        return name.stdout.strip() + (" with local changes" if changed.stdout.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown commit"


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def line() -> str:
    load = os.getloadavg()[0]
    return (
        f"{cpu_name()} ({widest_vectors()}), {len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} threads, "
        f"load {load:.1f}; Python {platform.python_version()}, torch {torch.__version__}, "
        f"torch_sinter {version('torch_sinter')}, commit {commit()}"
    )


def resident_kib(field: str = "VmRSS") -> int:
    """VmRSS is what is resident now, VmHWM the most there was in this process."""
    with open("/proc/self/status") as lines:
        for text in lines:
            if text.startswith(field + ":"):
                return int(text.split()[1])
    raise OSError(f"/proc/self/status has no {field}")


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a process failed, in one line: PyTorch's own messages can be hundreds of lines long."""
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    text = (errors or lines or ["no message"])[-1]
    return f"exit status {done.returncode}: {text[:300]}"


def table(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Aligned columns: the first `left` to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def show(row: list[str]) -> str:
        cells = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([show(head), "  ".join("-" * w for w in widths), *map(show, rows)])
