"""What autocast makes of the arguments of each op: prints a JSON line per op, for the device named on the command line.

Run in a process of its own: the kernel below autocast is replaced, for every op that has an autocast kernel on the CPU,
by one that notes the types that reach it and ends the call. So arguments need not make sense, and nothing is computed.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64, "i64": torch.int64}
# The types of successive tensor arguments; the last one is repeated.
INPUTS = [["f32"], ["bf16"], ["f16"], ["f64"], ["i64"]]
INPUTS += [
    ["f32", "bf16"],
    ["bf16", "f32"],
    ["f32", "f64"],
    ["bf16", "f64"],
    ["bf16", "i64"],
    ["i64", "bf16"],
    ["f32", "f16"],
]


class ReachedKernel(Exception):
    pass


def autocast_ops() -> list[str]:
    names = torch._C._dispatch_get_all_op_names()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return sorted(n for n in names if n.startswith("aten::") and has(n, "AutocastCPU"))


def overload(name: str) -> Any:
    base, _, rest = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), rest or "default")


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in tensors_in(part)] if isinstance(value, (list, tuple)) else []


def arguments(op: Any, types: list[str], device: str) -> tuple[list[Any], dict[str, Any]]:
    """One for each argument, by its type alone; every optional tensor is given."""
    made = 0

    def tensor() -> torch.Tensor:
        nonlocal made
        made += 1
        return torch.ones(2, 2, dtype=TYPES[types[min(made, len(types)) - 1]], device=device)

    def value(argument: Any) -> Any:
        kind = str(argument.real_type if hasattr(argument, "real_type") else argument.type)
        if kind in ("Tensor", "Optional[Tensor]"):
            return tensor()
        if kind in ("List[Tensor]", "Optional[List[Tensor]]", "List[Optional[Tensor]]"):
            return [tensor(), tensor()]
        if argument.has_default_value():
            return argument.default_value
        for text, example in (("List[int]", [1, 1]), ("List[SymInt]", [1, 1]), ("List[bool]", [True] * 8), ("int", 1),
                              ("SymInt", 1), ("float", 0.5), ("number", 1), ("Scalar", 1), ("bool", False), ("str", "mean")):  # fmt: skip
            if kind == text:
                return example
        if kind.startswith("Optional"):
            return None
        raise NotImplementedError(f"{op}: an argument of type {kind}")

    positional: list[Any] = []
    named: dict[str, Any] = {}
    for argument in op._schema.arguments:
        if argument.kwarg_only:
            named[argument.name] = value(argument)
        else:
            positional.append(value(argument))
    return positional, named


def outcome(op: Any, types: list[str], device: str) -> Any:
    positional, named = arguments(op, types, device)
    try:
        op(*positional, **named)
    except ReachedKernel as reached:
        return reached.args[0]
    except RuntimeError as problem:
        return str(problem).splitlines()[0]
    return "no kernel was reached"


def main(device: str) -> None:
    warnings.simplefilter("ignore")
    torch.ones(1, device=device)
    key = {"cpu": "CPU", "sinter": "PrivateUse1"}[device]
    library = torch.library.Library("aten", "IMPL")

    def note(*positional: Any, **named: Any) -> None:
        seen = [str(t.dtype).removeprefix("torch.") for t in tensors_in([*positional, *named.values()])]
        seen += [f"dtype={v}" for v in (*positional, *named.values()) if isinstance(v, torch.dtype)]
        raise ReachedKernel(seen)

    names = autocast_ops()
    for name in names:
        for level in (f"Autograd{key}", key):
            library.impl(name.removeprefix("aten::"), note, level, allow_override=True)
    for name in names:
        op = overload(name)
        row: dict[str, Any] = {"op": name}
        for fast in (torch.bfloat16, torch.float16):
            with torch.autocast(device, fast):
                row[str(fast)] = [outcome(op, types, device) for types in INPUTS]
                with torch.autocast(device, enabled=False):
                    row[f"off in {fast}"] = [outcome(op, types, device) for types in INPUTS]
        print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1])
