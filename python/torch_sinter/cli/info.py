"""`torch-sinter info`."""

from __future__ import annotations

import argparse
import json
import sys

from torch_sinter._src import info


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cmake-prefix",
        action="store_true",
        help="print only the folder for CMAKE_PREFIX_PATH, for find_package(sinter)",
    )
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.cmake_prefix:
        print(info.cmake_prefix())
        return 0
    facts = info.info()
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        _print(facts)
    if facts["problem"]:
        print(f"torch-sinter: {facts['problem']}", file=sys.stderr)
        return 1
    return 0


def _print(facts: dict) -> None:
    rows = {
        "torch-sinter": facts["version"],
        "torch": f"{facts['torch']} (built for {facts['built_for_torch']})",
        "python": facts["python"],
        "cpu": facts["cpu"],
        "cpu features": " ".join(facts["cpu_features"]) or "unknown",
        "threads": facts["threads"],
        "engines": ", ".join(facts["engines"]) or "none",
        "library": facts["library"],
        "kernel cache": facts["cache_dir"],
        "cmake prefix": facts["cmake_prefix"],
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name.ljust(width)}  {value}")
