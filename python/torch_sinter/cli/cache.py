"""`torch-sinter cache`: what the kernel cache on disk holds."""

from __future__ import annotations

import argparse
import pathlib
import sys

from torch_sinter._src import info

_MAGIC = b"sinter kernel 1\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("show", "verify", "clear"), nargs="?", default="show")


def folder() -> pathlib.Path:
    return pathlib.Path(info.cache_dir()) / "kernels"


def is_intact(path: pathlib.Path) -> bool:
    """Whether a file holds what its header says; the format is that of src/codegen/disk_cache.h."""
    data = path.read_bytes()
    header, newline, rest = data.removeprefix(_MAGIC).partition(b"\n")
    words = header.split()
    if not data.startswith(_MAGIC) or not newline or len(words) != 3:
        return False
    try:
        expected, checksum = int(words[0]) + int(words[1]), int(words[2], 16)
    except ValueError:
        return False
    state = 0xCBF29CE484222325
    for byte in rest:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return len(rest) == expected and state == checksum


def run(arguments: argparse.Namespace) -> int:
    files = sorted(folder().glob("*.kernel")) if folder().is_dir() else []
    if arguments.action == "clear":
        for path in [*files, *folder().glob("*.tmp")]:
            path.unlink(missing_ok=True)
        print(f"removed {len(files)} kernels from {folder()}")
        return 0
    size = sum(path.stat().st_size for path in files)
    print(f"{folder()}: {len(files)} kernels, {size:,} bytes")
    if arguments.action == "show":
        return 0
    damaged = [path for path in files if not is_intact(path)]
    for path in damaged:
        print(f"damaged (it counts as absent, and will be replaced): {path.name}", file=sys.stderr)
    print(f"{len(files) - len(damaged)} intact, {len(damaged)} damaged")
    return 1 if damaged else 0
