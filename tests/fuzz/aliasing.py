#!/usr/bin/env python
"""Random programs of views, in-place writes, copies and reads, against the CPU.

    python tests/fuzz/aliasing.py --seed 7 --print       # one program, shown statement by statement
    python tests/fuzz/aliasing.py --seed 0 --count 5000  # five thousand of them
    python tests/fuzz/aliasing.py --count 5000 --isolate # survives crashes: one process a program

A failing seed is shrunk to the fewest statements that still disagree.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import sys
import time
import warnings
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import torch

from fuzz import grammar
from fuzz.program import Trace, disagreement, execute, helpers, shrink
from support import device as under_test

DTYPES = [
    *(torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.complex64),
    *(torch.int64, torch.int32, torch.uint8, torch.bool),
]
MAX_TENSORS, MAX_NUMEL, MAX_BYTES = 14, 400, 1 << 15


class Builder:
    """Grows a program; runs each statement on the CPU at once, so that the next ones can be chosen to fit."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program: list[str] = []
        self.trace = Trace("cpu")
        self.scope = helpers(self.trace)
        self.names: list[str] = []  # tensors on the device
        self.hosts: list[str] = []  # tensors on the CPU
        self.count = 0

    def build(self, length: int) -> list[str]:
        rules, weights = zip(*RULES, strict=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            create(self)
            for _ in range(length):
                self.rng.choices(rules, weights)[0](self)
        return self.program

    def emit(self, statement: str, *targets: str) -> bool:
        """Whether it ran through."""
        self.program.append(statement)
        if not execute(statement, self.scope, self.trace):
            return False
        for target in targets:
            known, other = (self.hosts, self.names) if target.startswith("h") else (self.names, self.hosts)
            if target not in known:
                known.append(target)
            if target in other:
                other.remove(target)
        for name in list(self.names):
            t = self.scope[name]
            if t.numel() > MAX_NUMEL or t.untyped_storage().nbytes() > MAX_BYTES:
                self.drop(name)
        return True

    def drop(self, name: str) -> None:
        self.program.append(f"del {name}")
        del self.scope[name]
        self.names.remove(name)

    def sharing(self, name: str) -> list[str]:
        """The variables over the same storage, this one included."""
        storage = self.scope[name].untyped_storage()._cdata
        return [n for n in self.names if self.scope[n].untyped_storage()._cdata == storage]

    def pick(self, test: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        fitting = [n for n in self.names if test(self.scope[n])]
        return self.rng.choice(fitting) if fitting else None

    def target(self) -> str:
        """A variable for a result: mostly a new one, sometimes one that loses its old value."""
        if self.names and (len(self.names) >= MAX_TENSORS or self.rng.random() < 0.15):
            return self.rng.choice(self.names)
        self.count += 1
        return f"t{self.count}"

    def size(self) -> tuple[int, ...]:
        return tuple(self.rng.choice((1, 2, 3, 4, 5)) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))))

    def fill_in(self, choices: list[tuple[str, str]], n: str) -> str | None:
        """One of the forms that fit the tensor, filled in."""
        t = self.scope[n]
        a, b = n, self.rng.choice(self.names)
        facts = {
            "": True,
            "full": t.numel() > 0,
            "complex": t.is_complex(),
            "pairs": t.dim() > 0 and t.size(-1) == 2 and t.dtype in (torch.float32, torch.float64),
            "dim": t.dim() > 0,
            "length": t.dim() > 0 and t.numel() > 0,
            "matrix": t.dim() == 2,
            "same dtype": t.dtype == self.scope[b].dtype,
        }
        # half of the time the forms that ask for something, which otherwise drown among the others
        fitting = [pair for pair in choices if facts[pair[0]]]
        special = [pair for pair in fitting if pair[0]]
        form = self.rng.choice(special if special and self.rng.random() < 0.5 else fitting)[1]
        return form.format(n=n, a=a, b=b, **self._operands(t), **self._places(t))

    def _operands(self, t: torch.Tensor) -> dict[str, object]:
        def broadcasts(o: torch.Tensor) -> bool:
            if o.dim() > t.dim() or (o.is_complex() and not t.is_complex()):
                return False
            return all(x in (1, y) for x, y in zip(reversed(o.size()), reversed(t.size()), strict=False))

        if t.dtype is torch.bool:
            scalar = self.rng.choice(("True", "False"))
        else:
            scalar = self.rng.choice(
                ("2", "-1", "0.5", "3.0", "0") if t.dtype.is_floating_point else ("2", "1", "3", "0")
            )
        partner = self.pick(broadcasts) or self.rng.choice(self.names)
        either = partner if self.rng.random() < 0.8 else scalar
        dtype = self.rng.choice(DTYPES)
        return {
            "o": either,
            "m": partner,
            "s": scalar,
            "D": dtype,
            "V": dtype if dtype is not torch.bool else t.dtype,
            "z": self.size(),
        }

    def _places(self, t: torch.Tensor) -> dict[str, object]:
        divisors = [f for f in range(1, t.numel() + 1) if t.numel() % f == 0] or [1]
        room = t.untyped_storage().nbytes() // t.element_size()
        rank = self.rng.randrange(4)
        size = [self.rng.choice((1, 2, 3)) for _ in range(rank)]
        stride = [self.rng.choice((0, 1, 1, 2, 3, 4)) for _ in range(rank)]
        reach = sum((s - 1) * st for s, st in zip(size, stride, strict=True))
        beyond = 1 if self.rng.random() < 0.05 else 0
        offset = self.rng.randrange(max(1, room - reach + beyond))
        places: dict[str, object] = {"f": self.rng.choice(divisors), "as": f"{size}, {stride}, {offset}"}
        if t.dim():
            d, e = self.rng.randrange(-t.dim(), t.dim()), self.rng.randrange(-t.dim(), t.dim())
            i = self.rng.randrange(max(1, t.size(d)))
            places |= {"d": d, "e": e, "i": i, "p": self.rng.sample(range(t.dim()), t.dim())}
            places |= {"i0": self.rng.randrange(max(1, t.size(0))), "k": self.rng.randrange(max(1, t.size(d))) + 1}
            places["rest"] = self.rng.randrange(t.size(d) - i + 1 or 1)
        return places


# ---------------------------------------------------------------------------------------------- the kinds of statement


def create(b: Builder) -> None:
    name, size, dtype = b.target(), b.size(), b.rng.choice(DTYPES)
    value = "True" if dtype is torch.bool else "3"
    counting = torch.int64 if dtype is torch.bool else dtype
    statement = b.rng.choice(
        (
            f"new({b.rng.randrange(1000)}, {size}, {dtype})",
            f"new({b.rng.randrange(1000)}, {size}, {dtype})",
            f"torch.zeros({size}, dtype={dtype}, device=D)",
            f"torch.full({size}, {value}, dtype={dtype}, device=D)",
            f"torch.arange({b.rng.randrange(1, 30)}, dtype={counting}, device=D)",
        )
    )
    b.emit(f"{name} = {statement}", name)


def host(b: Builder) -> None:
    """Between host and device: what the host does to its tensor later must not show on the device."""
    kind, source, name = b.rng.randrange(5), b.pick(), f"h{b.rng.randrange(3)}"
    chosen = b.rng.choice(b.hosts) if b.hosts else None
    if kind == 0 or chosen is None or source is None:
        b.emit(f"{name} = data({b.rng.randrange(1000)}, {b.size()}, {b.rng.choice(DTYPES)})", name)
    elif kind == 1:
        b.emit(f"{name} = download({source})", name)
    elif kind == 2:
        target = b.target()
        b.emit(f"{target} = upload({chosen})", target)
        b.emit(f"{chosen}.fill_(1)")
    elif kind == 3:
        b.emit(f"{source}.copy_({chosen}{b.rng.choice(('', ', non_blocking=True'))})")
        b.emit(f"{chosen}.zero_()")
    else:
        b.emit(f"{chosen}.copy_({source})")


def result(choices: list[tuple[str, str]]) -> Callable[[Builder], None]:
    """A statement whose value is kept."""

    def rule(b: Builder) -> None:
        if n := b.pick():
            expression, target = b.fill_in(choices, n), b.target()
            b.emit(f"{target} = {expression}", target)

    return rule


def effect(choices: list[tuple[str, str]]) -> Callable[[Builder], None]:
    def rule(b: Builder) -> None:
        if n := b.pick():
            b.emit(b.fill_in(choices, n))

    return rule


def memory(b: Builder) -> None:
    """What changes the memory under a tensor. Bytes that nobody wrote may differ: resize_ gets its written."""
    if n := b.pick():
        statement = b.fill_in(grammar.MEMORY, n)
        if ".resize_" in statement:
            statement += f"; torch.empty(0, dtype=torch.uint8, device=D).set_({n}.untyped_storage()).fill_(1)"
        b.emit(statement)


def out(b: Builder) -> None:
    """out= into any tensor. Memory that nobody wrote may differ, so a target that would have to grow shares none with
    the operands, and a target that grew before the call raised is dropped."""
    n = b.pick()
    if not n:
        return
    a, o = b.rng.choice(b.names), b.rng.choice(b.names)
    form = b.rng.choice(grammar.OUTS)[1]
    shared, size = b.sharing(n), b.scope[n].size()
    if a in shared or o in shared:
        if (
            "mm" in form and b.scope[n].dtype is torch.bfloat16
        ):  # the threads of oneDNN's product see each other's writes
            return
        try:
            if eval(form.format(n="None", a=a, b=o), b.scope).size() != size:
                return
        except Exception:
            return
    if not b.emit(form.format(n=n, a=a, b=o)) and b.scope[n].size() != size:
        for name in shared:
            b.drop(name)


def forget(b: Builder) -> None:
    if len(b.names) > 2:
        b.drop(b.rng.choice(b.names))


RULES: list[tuple[Callable[[Builder], None], int]] = [
    (create, 2),
    (host, 2),
    (result(grammar.VIEWS), 10),
    (result(grammar.PURE), 5),
    (effect(grammar.WRITES), 10),
    (effect(grammar.READS), 2),
    (memory, 2),
    (out, 3),
    (forget, 1),
]


# ---------------------------------------------------------------------------------------------- the command line


def build(seed: int, length: int = 40) -> list[str]:
    return Builder(seed).build(length)


def _isolated(seed: int, length: int) -> int:
    """The check in a child process; its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        under_test.load_or_exit()
        os._exit(1 if disagreement(build(seed, length)) else 0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--length", type=int, default=40, help="statements in a program")
    parser.add_argument("--print", action="store_true", help="show the programs")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--isolate", action="store_true", help="a process for each program")
    options = parser.parse_args()
    failed, start = [], time.perf_counter()
    if not options.isolate:
        under_test.load_or_exit()
    for seed in range(options.seed, options.seed + options.count):
        if options.isolate:
            status = _isolated(seed, options.length)
            if status:
                failed.append(seed)
                print(f"seed {seed}: {f'ended by signal {-status}' if status < 0 else 'differs'}", flush=True)
            continue
        program = build(seed, options.length)
        if options.print:
            print("\n".join(program), flush=True)
        if found := disagreement(program):
            failed.append(seed)
            print(f"seed {seed}: {'; '.join(found)[:800]}", flush=True)
            if not options.no_shrink:
                program = shrink(program)
                print("    " + "\n    ".join(program))
                print(f"    # {'; '.join(disagreement(program))[:800]}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{options.count} programs in {seconds:.1f} s, {len(failed)} differ: {failed[:20]}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
