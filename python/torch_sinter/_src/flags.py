"""Read and change the flags of the library (docs/flags.md). Their table, types and defaults are the library's own.

torch_sinter.flags.set("BLOCKING", True)
with torch_sinter.flags.override(TRACE_LINES=True):
    ...
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from torch_sinter._src import runtime

Value = bool | int | str

__all__ = ["Flag", "get", "list", "override", "set"]


@dataclasses.dataclass(frozen=True)
class Flag:
    name: str
    type: str
    default: Value
    value: Value
    help: str
    in_key: bool


def _all() -> dict[str, Flag]:
    return {row["name"]: Flag(**row) for row in runtime.call_json("_flags")}


def _find(name: str) -> Flag:
    flags = _all()
    short = name.upper().removeprefix("SINTER_")
    if short not in flags:
        raise ValueError(f"there is no flag {name!r}; the flags are {', '.join(sorted(flags))}")
    return flags[short]


def _text(value: Value) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def get(name: str) -> Value:
    """The value in force of one flag, with or without the prefix SINTER_."""
    return _find(name).value


def set(name: str, value: Value) -> None:
    """Change a flag for what is recorded from now on."""
    flag = _find(name)
    # What is recorded already was recorded under the old value.
    runtime.sync(f"flag {flag.name} set")
    runtime.call("_set_flag", flag.name, _text(value))


def list() -> tuple[Flag, ...]:
    """Every flag with its type, default, value and help, in the table's order."""
    return tuple(_all().values())


@contextlib.contextmanager
def override(**values: Value) -> Iterator[None]:
    """Change flags inside a `with` block."""
    before = {name: get(name) for name in values}
    try:
        for name, value in values.items():
            set(name, value)
        yield
    finally:
        for name, value in before.items():
            set(name, value)
