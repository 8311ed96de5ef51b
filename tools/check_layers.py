#!/usr/bin/env python3
"""The laws of the source tree that a compiler does not enforce.

* a folder under src/ includes only the folders before it in LAYERS, and itself
* src/autoload includes none of them: it is loaded by every `import torch`
* only src/torch and src/autoload include PyTorch's headers, and nothing includes CPython's
* public headers (include/sinter) include no header of src/
* the environment is read in one file
* no source file is longer than MAX_LINES

Each rule is a function from a file to the complaints about it; `CHECKS` lists them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LAYERS = ["support", "ops", "graph", "passes", "fusion", "loops", "codegen", "plan", "runtime", "engine", "torch"]
APART = "autoload"
READS_ENVIRONMENT = "src/support/flags.cpp"
MAX_LINES = 700

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
TORCH_HEADER = re.compile(r"^(ATen|c10|torch|caffe2|aten)/")
PYTHON_HEADER = re.compile(r"^(Python\.h|pybind11/|torch/csrc/(utils/)?python|torch/extension\.h|torch/python\.h)")
GETENV = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
COMMENT = re.compile(r"//.*$")


@dataclass(frozen=True)
class Source:
    path: str  # from the root, with slashes
    lines: list[str]

    @property
    def layer(self) -> str | None:
        """The folder under src/ that the file lies in."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) > 2 else None

    def includes(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.lines, 1):
            if match := INCLUDE.match(line):
                yield number, match.group(1)


def layer_of_include(source: Source, header: str) -> str | None:
    """The layer that an included header belongs to, None when it is not ours."""
    name = header.removeprefix("src/")
    if header.startswith("."):  # relative: resolved from the including file
        folder = Path(source.path).parent
        parts: list[str] = []
        for part in (folder / header).parts:
            if part == "..":
                parts = parts[:-1]
            else:
                parts.append(part)
        name = "/".join(parts).removeprefix("src/")
    first = name.split("/")[0]
    # torch/ is also the name of PyTorch's include folder: ours are the ones that exist.
    if first == "torch" and not (ROOT / "src" / name).exists():
        return None
    return first if "/" in name and first in LAYERS else None


def check_direction(source: Source) -> Iterator[str]:
    if source.layer is None:
        return
    if source.layer == APART:
        for number, header in source.includes():
            if layer_of_include(source, header):
                yield f"{source.path}:{number}: {APART} includes {header}; it stands apart from the rest of src"
        return
    if source.layer not in LAYERS:
        yield f"{source.path}: src/{source.layer} is no layer; tools/check_layers.py and CMakeLists.txt list them"
        return
    for number, header in source.includes():
        layer = layer_of_include(source, header)
        if layer and LAYERS.index(layer) > LAYERS.index(source.layer):
            yield f"{source.path}:{number}: {source.layer} includes {header}, which lies above it"


def check_torch(source: Source) -> Iterator[str]:
    may_include_torch = source.layer in ("torch", APART) or source.path.startswith(
        ("include/", "examples/", "bench/", "tests/")
    )
    for number, header in source.includes():
        ours = layer_of_include(source, header) is not None
        if PYTHON_HEADER.match(header):
            yield f"{source.path}:{number}: {header} brings CPython into the C++"
        elif TORCH_HEADER.match(header) and not ours and not may_include_torch:
            yield f"{source.path}:{number}: {header} is PyTorch's; only src/torch and src/{APART} may include it"


def check_public(source: Source) -> Iterator[str]:
    if source.path.startswith("include/"):
        for number, header in source.includes():
            if layer_of_include(source, header):
                yield f"{source.path}:{number}: a public header includes {header}, which is not installed"


def check_environment(source: Source) -> Iterator[str]:
    if source.layer is None or source.path == READS_ENVIRONMENT or source.path.endswith("_test.cpp"):
        return
    for number, line in enumerate(source.lines, 1):
        if GETENV.search(COMMENT.sub("", line)):
            yield f"{source.path}:{number}: the environment is read in {READS_ENVIRONMENT} only; make it a flag"


def check_length(source: Source) -> Iterator[str]:
    if len(source.lines) > MAX_LINES:
        yield f"{source.path}: {len(source.lines)} lines; more than {MAX_LINES} are more than one idea"


CHECKS = [check_direction, check_torch, check_public, check_environment, check_length]
CPP = {".h", ".hpp", ".cpp"}
FOLDERS = {"src": CPP, "include": CPP, "examples": CPP | {".py"}, "bench": CPP | {".py"}}
FOLDERS |= {"python": {".py"}, "tests": CPP | {".py"}, "tools": {".py"}}
ROOT = Path(__file__).resolve().parent.parent


def sources(root: Path) -> Iterator[Source]:
    for folder, suffixes in FOLDERS.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield Source(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8").splitlines())


def complaints(root: Path) -> list[str]:
    found = []
    for source in sources(root):
        checks = CHECKS if Path(source.path).suffix in CPP else [check_length]
        found += [complaint for check in checks for complaint in check(source)]
    return found


def main() -> int:
    found = complaints(ROOT)
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
