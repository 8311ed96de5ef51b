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

from fuzz.program import Trace, disagreement, execute, helpers, shrink

import torch
from support import device as under_test

DTYPES = [torch.float32, torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8,
          torch.bfloat16, torch.complex64]
MAX_TENSORS, MAX_NUMEL = 14, 400


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

    # choosing
    def pick(self, test: Callable[[torch.Tensor], bool] = lambda t: True) -> str | None:
        fitting = [n for n in self.names if test(self.scope[n])]
        return self.rng.choice(fitting) if fitting else None

    def tensor(self, name: str) -> torch.Tensor:
        return self.scope[name]

    def dim(self, t: torch.Tensor) -> int:
        return self.rng.randrange(-t.dim(), t.dim())

    def name(self) -> str:
        """A variable for a result: mostly a new one, sometimes one that loses its old value."""
        if self.names and (len(self.names) >= MAX_TENSORS or self.rng.random() < 0.15):
            return self.rng.choice(self.names)
        self.count += 1
        return f"t{self.count}"

    def size(self) -> tuple[int, ...]:
        return tuple(self.rng.choice((1, 2, 3, 4, 5)) for _ in range(self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))))

    def scalar(self, t: torch.Tensor) -> str:
        if t.dtype is torch.bool:
            return self.rng.choice(("True", "False"))
        if t.dtype.is_floating_point or t.dtype.is_complex:
            return self.rng.choice(("2", "-1", "0.5", "3.0", "0"))
        return self.rng.choice(("2", "1", "3", "0"))

    # growing
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
        for name in [n for n in self.names if self.scope[n].numel() > MAX_NUMEL or self.scope[n].untyped_storage().nbytes() > 8 * 4096]:
            self.drop(name)
        return True

    def sharing(self, name: str) -> list[str]:
        """The variables over the same storage, this one included."""
        storage = self.scope[name].untyped_storage()._cdata
        return [n for n in self.names if self.scope[n].untyped_storage()._cdata == storage]

    def drop(self, name: str) -> None:
        self.program.append(f"del {name}")
        del self.scope[name]
        self.names.remove(name)

    def build(self, length: int) -> list[str]:
        rules = [rule for rule, weight in RULES for _ in range(weight)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            create(self)
            for _ in range(length):
                self.rng.choice(rules)(self)
        return self.program


# ------------------------------------------------------------------------------------------------ where tensors come from


def create(b: Builder) -> None:
    name, size, dtype = b.name(), b.size(), b.rng.choice(DTYPES)
    kind = b.rng.randrange(6)
    if kind < 3:
        b.emit(f"{name} = new({b.rng.randrange(1000)}, {size}, {dtype})", name)
    elif kind == 3:
        b.emit(f"{name} = torch.{b.rng.choice(('zeros', 'ones'))}({size}, dtype={dtype}, device=D)", name)
    elif kind == 4:
        value = "True" if dtype is torch.bool else "3"
        b.emit(f"{name} = torch.full({size}, {value}, dtype={dtype}, device=D)", name)
    else:
        n = b.rng.randrange(1, 30)
        b.emit(f"{name} = torch.arange({n}, dtype={torch.int64 if dtype is torch.bool else dtype}, device=D)", name)


def host(b: Builder) -> None:
    """Between host and device: what the host does to its tensor later must not show on the device."""
    kind, source = b.rng.randrange(5), b.pick()
    if kind == 0 or not b.hosts:
        name = f"h{b.rng.randrange(3)}"
        b.emit(f"{name} = data({b.rng.randrange(1000)}, {b.size()}, {b.rng.choice(DTYPES)})", name)
    elif kind == 1 and source:
        name = f"h{b.rng.randrange(3)}"
        b.emit(f"{name} = download({source})", name)
    elif kind == 2:
        name = b.name()
        b.emit(f"{name} = upload({b.rng.choice(b.hosts)})", name)
        b.emit(f"{b.rng.choice(b.hosts)}.fill_(1)")
    elif kind == 3 and source:
        chosen = b.rng.choice(b.hosts)
        b.emit(f"{source}.copy_({chosen}{b.rng.choice(('', '', ', non_blocking=True'))})")
        b.emit(f"{chosen}.zero_()")
    elif source:
        b.emit(f"{b.rng.choice(b.hosts)}.copy_({source})")


# ------------------------------------------------------------------------------------------------ views


def _shape_views(b: Builder, n: str, t: torch.Tensor) -> list[str]:
    factors = [d for d in range(1, t.numel() + 1) if t.numel() % d == 0] or [1]
    f = b.rng.choice(factors)
    return [f"{n}.view({f}, -1)" if t.numel() else f"{n}.view({tuple(t.size())})", f"{n}.reshape({f}, -1)" if t.numel() else f"{n}.flatten()",
            f"{n}.flatten()", f"{n}.view(-1)", f"{n}.ravel()", f"{n}.view_as({n})"]


def _dim_views(b: Builder, n: str, t: torch.Tensor) -> list[str]:
    d, e = b.dim(t), b.dim(t)
    length, order = t.size(d), b.rng.sample(range(t.dim()), t.dim())
    start = b.rng.randrange(length + 1)
    found = [f"{n}.transpose({d}, {e})", f"{n}.permute({order})", f"{n}.unsqueeze({d})", f"{n}.squeeze({d})", f"{n}.movedim({d}, {e})",
             f"{n}.narrow({d}, {start}, {b.rng.randrange(length - start + 1)})", f"{n}[{start}:]", f"{n}[..., ::{b.rng.choice((1, 2, 3))}]",
             f"{n}.expand(2, {', '.join(['-1'] * t.dim())})", f"{n}.mT" if t.dim() >= 2 else f"{n}[None]",
             f"{n}[..., None]", f"{n}.squeeze()", f"torch.broadcast_to({n}, {(3, *t.size())})"]
    if length:
        i = b.rng.randrange(-length, length)
        k = b.rng.randrange(1, length + 1)
        found += [f"{n}.select({d}, {i})", f"{n}.unfold({d}, {k}, {b.rng.choice((1, 2, 3))})", f"{n}.select({d}, {i})",
                  f"{n}.chunk({b.rng.choice((2, 3))}, {d})[-1]", f"{n}.split({k}, {d})[0]", f"{n}.unbind({d})[{i}]",
                  f"{n}.unflatten({d}, (-1, 1))", f"{n}.tensor_split(2, {d})[0]"]
    if t.dim() >= 2:
        found += [f"{n}.diagonal({b.rng.choice((-1, 0, 1))}, {d}, {e})", f"{n}.t()", f"{n}.swapaxes({d}, {e})"]
    return found


def _strided_views(b: Builder, n: str, t: torch.Tensor) -> list[str]:
    """as_strided anywhere into the storage, overlapping or not, now and then beyond its end."""
    room = t.untyped_storage().nbytes() // t.element_size()
    rank = b.rng.randrange(4)
    size = [b.rng.choice((1, 2, 3)) for _ in range(rank)]
    stride = [b.rng.choice((0, 1, 1, 2, 3, 4)) for _ in range(rank)]
    reach = sum((s - 1) * st for s, st in zip(size, stride))
    offset = b.rng.randrange(max(1, room - reach + (1 if b.rng.random() < 0.05 else 0)))
    return [f"{n}.as_strided({size}, {stride}, {offset})", f"torch.as_strided({n}, {size}, {stride})"]


def _kind_views(b: Builder, n: str, t: torch.Tensor) -> list[str]:
    found = [f"{n}.detach()", f"{n}.data", f"{n}.view({b.rng.choice(DTYPES)})", f"{n}.contiguous()", f"{n}.to({b.rng.choice(DTYPES)})",
             f"{n}.to(D)", f"{n}.conj()", f"{n}.real", f"torch.ops.aten.alias({n})", f"{n}.resolve_conj()"]
    if t.is_complex():
        found += [f"{n}.imag", f"torch.view_as_real({n}.resolve_conj())", f"{n}.conj()", f"{n}.conj().imag", f"{n}.H" if t.dim() == 2 else f"{n}.adjoint()"]
    if t.dim() and t.size(-1) == 2 and t.dtype in (torch.float32, torch.float64):
        found.append(f"torch.view_as_complex({n})")
    return found


def view(b: Builder) -> None:
    n = b.pick()
    if not n:
        return
    t = b.tensor(n)
    groups = [_shape_views, _kind_views, _strided_views] + ([_dim_views] * 4 if t.dim() else [])
    target = b.name()
    b.emit(f"{target} = {b.rng.choice(b.rng.choice(groups)(b, n, t))}", target)


# ------------------------------------------------------------------------------------------------ writes


def _fitting(b: Builder, t: torch.Tensor) -> str:
    """An operand that broadcasts to t, if there is one."""

    def fits(o: torch.Tensor) -> bool:
        if o.dim() > t.dim() or (o.is_complex() and not t.is_complex()):
            return False
        return all(x in (1, y) for x, y in zip(reversed(o.size()), reversed(t.size())))

    return b.pick(fits) or b.scalar(t)


def write(b: Builder) -> None:
    n = b.pick()
    if not n:
        return
    t = b.tensor(n)
    other, s = _fitting(b, t), b.scalar(t)
    tensor_other = other if other in b.names else n
    found = [f"{n}.add_({other})", f"{n}.mul_({s})", f"{n}.fill_({s})", f"{n}.zero_()", f"{n}.copy_({tensor_other})", f"{n}[...] = {other}",
             f"{n}.sub_({other}, alpha=2)", f"{n} += {other}", f"{n}.copy_({tensor_other})", f"{n}.set_({n})", f"{n}.neg_()", f"{n}.abs_()",
             f"{n}.clamp_(-2, 2)", f"{n}.masked_fill_({n} == 1, {s})", f"{n}.mul_({other})", f"{n}.addcmul_({tensor_other}, {n})",
             f"torch._foreach_add_([{n}, {tensor_other}], 1)", f"{n}.bitwise_not_()", f"{n}.relu_()", f"{n}.sign_()", f"{n}.eq_({other})",
             f"{n}[{n} > 0] = {s}", f"{n}.logical_not_()", f"{n}.fill_({n}.sum())", f"torch._foreach_copy_([{n}], [{tensor_other}])"]
    if t.dim():
        d = b.dim(t)
        length = t.size(d)
        found += [f"{n}[:1] = {s}", f"{n}[..., ::2].add_({s})", f"{n}.cumsum_({d})", f"{n}.squeeze_()", f"{n}.unsqueeze_({d})",
                  f"{n}.transpose_({d}, {b.dim(t)})", f"{n}[-1] = {n}[0]", f"{n}.transpose({d}, 0).mul_({s})", f"{n}[:-1].copy_({n}[1:])",
                  f"{n}.t_()"]
        if length:
            i = [b.rng.randrange(length) for _ in range(b.rng.choice((1, 2)))]
            found += [f"{n}.index_fill_({d}, torch.tensor({i}, device=D), {s})", f"{n}.index_add_({d}, torch.tensor({i}, device=D), {n}.narrow({d}, 0, 1).expand_as({n}).narrow({d}, 0, {min(len(i), length)}))",
                      f"{n}.scatter_({d}, torch.zeros_like({n}, dtype=torch.int64), {s})", f"{n}.index_copy_({d}, torch.tensor({i[:1]}, device=D), {n}.narrow({d}, 0, 1))",
                      f"{n}[torch.tensor({i}, device=D)] = {s}", f"{n}.select({d}, {i[0]}).add_({s})"]
    if t.dim() == 2:
        found += [f"{n}.tril_()", f"{n}.fill_diagonal_({s})", f"{n}.t_()"]
    b.emit(b.rng.choice(found))


def memory(b: Builder) -> None:
    """What changes the memory under a tensor."""
    n, o = b.pick(), b.pick()
    if not n or not o:
        return
    t = b.tensor(n)
    size = b.size()
    found = [f"{n}.resize_({size})", f"{n}.resize_as_({o})", f"{n}.set_({o})", f"{n}.set_({o}.untyped_storage(), {b.tensor(o).storage_offset()}, {tuple(b.tensor(o).size())}, {tuple(b.tensor(o).stride())})" if t.dtype == b.tensor(o).dtype else f"{n}.set_({o})",
             f"{n}.data = {o}", f"{n}.data = {o}.clone()", f"{n}.set_()", f"{n}.as_strided_({tuple(t.size())}, {tuple(t.stride())}, {t.storage_offset()})",
             f"{n}.detach_()", f"{n} = {o}", f"{n}.untyped_storage().resize_({t.untyped_storage().nbytes()})"]
    statement = b.rng.choice(found)
    grows = statement.startswith((f"{n}.resize_(", f"{n}.resize_as_("))
    b.emit(statement)
    if grows and n in b.names and b.tensor(n).numel():
        b.emit(f"{n}.fill_({b.scalar(b.tensor(n))})")  # bytes that nobody wrote may differ
        storage = f"torch.empty(0, dtype=torch.uint8, device=D).set_({n}.untyped_storage())"
        b.emit(f"{storage}.fill_(1)")


def out(b: Builder) -> None:
    """out= into any tensor. Memory that nobody wrote may differ, so a target that would have to grow shares none with the operands,
    and a target that grew before the call raised is dropped."""
    n, a, o = b.pick(), b.pick(), b.pick()
    if not n or not a or not o:
        return
    t = b.tensor(a)
    found = [f"torch.add({a}, {o}, out={n})", f"torch.mul({a}, 2, out={n})", f"torch.cat([{a}, {a}], out={n})", f"torch.sum({a}, out={n})",
             f"torch.clamp({a}, -1, 1, out={n})", f"torch.abs({a}, out={n})", f"torch.where({a} > 0, {a}, {o}, out={n})", f"torch.stack([{a}, {a}], out={n})"]
    if t.dim():
        d = b.dim(t)
        found += [f"torch.cumsum({a}, {d}, out={n})", f"torch.sum({a}, {d}, out={n})", f"torch.index_select({a}, {d}, torch.tensor([0], device=D), out={n})"]
    if t.dim() == 2:
        found += [f"torch.mm({a}, {a}.t(), out={n})", f"torch.tril({a}, out={n})"]
    statement = b.rng.choice(found)
    shared = b.sharing(n)
    if a in shared or o in shared:
        try:
            if eval(statement.replace(f", out={n})", ")"), b.scope).size() != b.tensor(n).size():
                return
        except Exception:
            return
    size = b.tensor(n).size()
    if not b.emit(statement) and b.tensor(n).size() != size:
        for name in shared:
            b.drop(name)


# ------------------------------------------------------------------------------------------------ pure operators, reads, ends


def compute(b: Builder) -> None:
    n = b.pick()
    if not n:
        return
    t = b.tensor(n)
    other, s = _fitting(b, t), b.scalar(t)
    found = [f"{n} + {other}", f"{n} * {s}", f"{n}.clone()", f"torch.cat([{n}, {n}])", f"{n}.sum()", f"torch.where({n} == {s}, {n}, {other})", f"{n}.to({b.rng.choice(DTYPES)}, copy=True)",
             f"torch.zeros_like({n})", f"{n}.clone(memory_format=torch.contiguous_format)", f"torch.stack([{n}, {n}], -1)", f"{n} == {other}", f"{n}.new_zeros({b.size()})", f"{n}[{n} > 0]",
             f"-{n}", f"torch.maximum({n}, {n})"]
    if t.dim():
        d = b.dim(t)
        found += [f"{n}.sum({d})", f"{n}.flip({d})", f"{n}.roll(1, {d})", f"{n}.cumsum({d})", f"{n}.amax({d})", f"{n}.sort({d}, stable=True)[0]", f"{n}.repeat({', '.join(['2'] * t.dim())})"]
        if t.size(d):
            found += [f"{n}.index_select({d}, torch.tensor([0, -1 + {t.size(d)}], device=D))", f"{n}[torch.tensor([0], device=D)]"]
    if t.dim() == 2:
        found += [f"{n} @ {n}.t()", f"{n}.tril()"]
    target = b.name()
    b.emit(f"{target} = {b.rng.choice(found)}", target)


def look(b: Builder) -> None:
    n = b.pick()
    if n:
        b.emit(b.rng.choice((f"read({n})", f"read({n})", f"item({n}.sum())", "sync()", "end_graph()", f"item(bool(({n} == 0).any()))",
                             f"item({n}.tolist())", f"item(torch.equal({n}, {n}))", f"item({n}.data_ptr() == {n}.detach().data_ptr())")))


def forget(b: Builder) -> None:
    if len(b.names) > 2:
        b.drop(b.rng.choice(b.names))


RULES: list[tuple[Callable[[Builder], None], int]] = [
    (create, 2), (host, 2), (view, 10), (write, 10), (memory, 2), (out, 3), (compute, 5), (look, 2), (forget, 1),
]


def build(seed: int, length: int = 40) -> list[str]:
    return Builder(seed).build(length)


def check(seed: int, length: int) -> tuple[list[str], list[str]]:
    program = build(seed, length)
    return program, disagreement(program)


def _isolated(seed: int, length: int) -> int:
    """The check in a child process; its exit status, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        under_test.load_or_exit()
        os._exit(1 if check(seed, length)[1] else 0)
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
        program, found = check(seed, options.length)
        if options.print:
            print("\n".join(program), flush=True)
        if found:
            failed.append(seed)
            print(f"seed {seed}: {'; '.join(found)[:800]}", flush=True)
            if not options.no_shrink:
                program = shrink(program)
                print("    " + "\n    ".join(program))
                print(f"    # {'; '.join(disagreement(program))[:800]}", flush=True)
    print(f"{options.count} programs in {time.perf_counter() - start:.1f} s, {len(failed)} differ{': ' if failed else ''}{failed[:20] if failed else ''}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
