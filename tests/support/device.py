"""The device under test.

`SINTER_TEST_DEVICE` names it. The default is the lazy device; "cpu" compares the CPU with itself, which checks the
tests themselves and finds operators that are not repeatable on the CPU either.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import torch

NAME = os.environ.get("SINTER_TEST_DEVICE", "sinter")
IS_LAZY = NAME != "cpu"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def load() -> str | None:
    """Makes the device usable; says what is missing if it cannot be."""
    if not IS_LAZY:
        return None
    try:
        importlib.import_module("torch_sinter")
    except ImportError:
        sys.path.insert(0, str(ROOT / "python"))
        try:
            importlib.import_module("torch_sinter")
        except ImportError as problem:
            return f"torch_sinter cannot be imported ({problem}): run `make setup`"
    try:
        torch.empty(1, device=NAME)
    except Exception as problem:  # whatever it is, the reader needs the words
        return f'the device "{NAME}" does not start ({type(problem).__name__}: {problem}): run `make setup`'
    return None


def load_or_exit() -> None:
    """For command lines: the same, ending the process with the reason."""
    problem = load()
    if problem:
        sys.exit(problem)


def sync(cause: str = "test") -> None:
    """Ends the open graph and waits."""
    if IS_LAZY:
        torch.ops.sinter._sync(cause)


def metrics() -> dict[str, Any]:
    """Counters and timers as the library hands them out."""
    return json.loads(torch.ops.sinter._metrics())


def counter(name: str) -> int:
    return metrics()["counters"].get(name, 0)


def counted(action: Callable[[], Any], *names: str) -> tuple[Any, dict[str, int]]:
    """The action's result, and by how much the named counters rose meanwhile."""
    before = metrics()["counters"]
    result = action()
    after = metrics()["counters"]
    return result, {name: after.get(name, 0) - before.get(name, 0) for name in names}


def set_flag(name: str, value: object) -> None:
    torch.ops.sinter._set_flag(name, str(value))


def flag(name: str) -> str:
    return next(str(row["value"]) for row in json.loads(torch.ops.sinter._flags()) if row["name"] == name)
