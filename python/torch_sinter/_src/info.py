"""What is installed and what it can do: the data behind `torch-sinter info`."""

from __future__ import annotations

import os
import pathlib
import platform
from typing import Any

import torch

from torch_sinter._src import runtime, version


def cache_dir() -> str:
    """Where compiled kernels are kept between processes (the flag CACHE_DIR)."""
    configured = os.environ.get("SINTER_CACHE_DIR") or (_flag("CACHE_DIR") if runtime.is_loaded() else "")
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return str(configured or pathlib.Path(base) / "torch_sinter")


def _flag(name: str) -> str:
    from torch_sinter._src import flags

    return str(flags.get(name))


def cmake_prefix() -> str:
    """The folder for CMAKE_PREFIX_PATH: `find_package(sinter)` finds the headers and the library from there."""
    return str(runtime.library_path().parent.parent)


def info() -> dict[str, Any]:
    """Versions, engines, CPU features, places. Loads the library; if that fails, "problem" says why."""
    facts: dict[str, Any] = {
        "version": version.installed(),
        "torch": torch.__version__,
        "built_for_torch": version.TORCH,
        "python": platform.python_version(),
        "library": str(runtime.library_path()),
        "cmake_prefix": cmake_prefix(),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "engines": [],
        "cpu_features": [],
        "problem": None,
    }
    try:
        native = runtime.call_json("_info")
    except ImportError as error:
        facts["problem"] = str(error)
    else:
        facts["engines"] = native["engines"]
        facts["cpu_features"] = native["cpu_features"]
        facts["library_version"] = native["version"]
    facts["cache_dir"] = cache_dir()
    return facts


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            for line in cpuinfo:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
