"""One operator of PyTorch's own database, run on the device and on the CPU.

`calls_of(op, dtype)` yields every call that is to be compared: the function, the method and operator forms, aliases,
in-place and out= variants, backward. `compare_calls(calls)` runs them on both sides, all of them on the device before
the first one is read (or one by one, with `lazy=False`), and says what differs. Which operators draw random numbers is
seen from the CPU generator's state; of their results the metadata must match, and the same seed must give the same
numbers twice.
"""

from __future__ import annotations

import dataclasses
import gc
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import pytest
import torch
from torch.testing._internal import common_methods_invocations as database
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from support import compare
from support import device as under_test
from support.moving import Mover, NotStrided, tensors_of

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
VARIANTS = ("forward", "method", "operator", "alias", "inplace", "out", "backward", "inplace_backward")
SEED = 20260

# The database seeds its random operators itself and hides that from the CPU generator. Here the seed is ours to choose,
# and the generator's state is how a random operator is known.
database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


def _seed_samples(seed: int | None = None) -> None:
    """What the database calls before each sample; its own seeds every accelerator there is, at a millisecond each."""
    seed = common_utils.SEED if seed is None else seed
    torch.random.default_generator.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


common_utils.set_rng_seed = _seed_samples

TOTALS: pytest.StashKey[Report] = pytest.StashKey()  # what a test run compared altogether


@dataclasses.dataclass
class Call:
    """`run` gets moved arguments and returns whatever is to be compared."""

    variant: str
    index: int  # of the sample
    label: str
    arguments: Any
    run: Callable[[Any], Any]
    scalars_stay: bool = False


@dataclasses.dataclass
class Outcome:
    """What a call left behind on one side."""

    mover: Mover
    result: Any = None
    error: Exception | None = None
    changed: list[bool] = dataclasses.field(default_factory=list)  # version counters of the inputs that moved on
    draws: bool = False  # random numbers
    again: Any = None  # the result of a second run with the same seed


@dataclasses.dataclass
class Report:
    calls: Counter[str] = dataclasses.field(default_factory=Counter)
    skipped: Counter[str] = dataclasses.field(default_factory=Counter)  # reason: count
    random: int = 0
    failures: list[tuple[Call, list[str]]] = dataclasses.field(default_factory=list)

    def add(self, other: Report) -> None:
        self.calls += other.calls
        self.skipped += other.skipped
        self.random += other.random
        self.failures += other.failures


# ------------------------------------------------------------------------------------------------ what is called


def calls_of(op: OpInfo, dtype: torch.dtype, variants: Sequence[str] = VARIANTS) -> Iterator[Call]:
    """Every call of the operator with this dtype, over all samples."""
    if dtype not in op.supported_dtypes("cpu"):
        return
    plain = [v for v in variants if v not in ("backward", "inplace_backward")]
    if plain:
        for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
            yield from _plain_calls(op, index, sample, plain)
    differentiable = (dtype.is_floating_point or dtype.is_complex) and op.supports_autograd
    if differentiable and dtype in op.supported_backward_dtypes("cpu"):
        wanted = [v for v in variants if v in ("backward", "inplace_backward")]
        if wanted:
            for index, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=True)):
                yield from _gradient_calls(op, index, sample, wanted)


def _arguments(sample: SampleInput) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    return sample.input, sample.args, sample.kwargs


def _applied(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda moved: function(moved[0], *moved[1], **moved[2])


def _plain_calls(op: OpInfo, index: int, sample: SampleInput, variants: Sequence[str]) -> Iterator[Call]:
    arguments, label = _arguments(sample), sample.name
    functions: dict[str, list[Callable[..., Any] | None]] = {
        "forward": [op],
        "method": [op.method_variant],
        "operator": [op.operator_variant],
        "alias": [alias.op for alias in op.aliases],
        "inplace": [op.inplace_variant, op.inplace_operator_variant],
    }
    for variant, candidates in functions.items():
        for function in filter(None, candidates if variant in variants else ()):
            yield Call(variant, index, label, arguments, _applied(function))
    scalar_beside = any(t.dim() == 0 for t in tensors_of(arguments[1:])) and any(t.dim() for t in tensors_of(arguments))
    if "forward" in variants and scalar_beside:
        yield Call("forward", index, f"{label} 0-dim on the CPU", arguments, _applied(op), scalars_stay=True)
    if "out" in variants and op.supports_out:
        yield from _out_calls(op, index, sample)


def _out_calls(op: OpInfo, index: int, sample: SampleInput) -> Iterator[Call]:
    """out= into tensors that fit, that have another layout, that must grow, that have a wider dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            first, args, kwargs = Mover("cpu")(_arguments(sample))
            expected = op(first, *args, **kwargs)
        except Exception:  # the forward variant reports it
            return
    results = tensors_of(expected)
    if not results or len(results) != (1 if isinstance(expected, torch.Tensor) else len(expected)):
        return
    for name, make in _OUT_KINDS.items():
        outs = [make(t) for t in results]
        target = outs[0] if isinstance(expected, torch.Tensor) else tuple(outs)

        def run(moved: Any) -> Any:
            return op(moved[0], *moved[1], **moved[2], out=moved[3])

        yield Call("out", index, f"{sample.name} out {name}", (*_arguments(sample), target), run)


def _filled(t: torch.Tensor) -> torch.Tensor:
    return t.fill_(1)


_OUT_KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fitting": lambda t: _filled(torch.empty_strided(t.size(), t.stride(), dtype=t.dtype)),
    "strided": lambda t: _filled(torch.empty(*t.size(), 2, dtype=t.dtype))[..., 1],
    "growing": lambda t: torch.empty(0, dtype=t.dtype),
    "wider": lambda t: _filled(torch.empty(t.size(), dtype=torch.complex128 if t.is_complex() else torch.float64)),
}


def _gradient_calls(op: OpInfo, index: int, sample: SampleInput, variants: Sequence[str]) -> Iterator[Call]:
    arguments = _arguments(sample)

    def backward(function: Callable[..., Any], moved: Any) -> Any:
        result = function(moved[0], *moved[1], **moved[2])
        processed = sample.output_process_fn_grad(result)
        outputs = [t for t in tensors_of(processed) if t.requires_grad]
        leaves = [t for t in tensors_of(moved) if t.requires_grad]
        torch.autograd.backward(outputs, [random_direction(t) for t in outputs], inputs=leaves or None)
        return result, [t.grad for t in leaves]

    if "backward" in variants and any(t.requires_grad for t in tensors_of(arguments)):
        yield Call("backward", index, sample.name, arguments, lambda moved: backward(op, moved))
    inplace = op.inplace_variant
    if (
        "inplace_backward" in variants
        and inplace is not None
        and op.supports_inplace_autograd
        and not sample.broadcasts_input
    ):
        if not isinstance(sample.input, torch.Tensor) or not sample.input.requires_grad:
            return

        def through_clone(first: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return inplace(first.clone(), *args, **kwargs)

        yield Call("inplace_backward", index, sample.name, arguments, lambda moved: backward(through_clone, moved))


def random_direction(t: torch.Tensor) -> torch.Tensor:
    """A fixed incoming gradient, uneven so that permuted results show."""
    ramp = torch.arange(t.numel(), dtype=torch.float64).mul_(0.37).cos_()
    ramp = torch.complex(ramp, ramp.flip(0)) if t.dtype.is_complex else ramp
    return ramp.to(t.dtype).reshape(t.shape).to(t.device)


# ------------------------------------------------------------------------------------------------ running and comparing


def _run(call: Call, device: str, seeded: bool) -> Outcome:
    outcome = Outcome(Mover(device, call.scalars_stay))
    moved = outcome.mover(call.arguments)
    before = [t._version for t in outcome.mover.tensors]
    if seeded:
        torch.manual_seed(SEED)
    try:
        outcome.result = call.run(moved)
    except Exception as error:  # whatever the CPU raises, the device must
        outcome.error = error.with_traceback(None)
    outcome.changed = [t._version != v for t, v in zip(outcome.mover.tensors, before, strict=False)]
    return outcome


def _run_on_cpu(call: Call) -> Outcome:
    state = torch.random.default_generator.get_state()
    outcome = _run(call, "cpu", seeded=False)
    outcome.draws = not torch.equal(state, torch.random.default_generator.get_state())
    return outcome


def _run_on_device(call: Call, random: bool) -> Outcome:
    outcome = _run(call, under_test.NAME, seeded=random)
    if random and outcome.error is None:
        outcome.again = _run(call, under_test.NAME, seeded=True).result
    return outcome


def _differences(call: Call, want: Outcome, got: Outcome, values: bool) -> list[str]:
    if want.error is not None or got.error is not None:
        if type(want.error) is type(got.error) or (call.scalars_stay and _on_two_devices(got.error)):
            return []
        return [f"raises {_brief(got.error)}, the CPU {_brief(want.error)}"]
    values = values and not want.draws
    found = compare.differences(want.result, got.result, values=values)
    mine, theirs = tensors_of(got.result), tensors_of(want.result)
    astray = [i for i, t in enumerate(mine) if t.device.type != under_test.NAME]
    if astray and any(t.device.type == under_test.NAME for t in got.mover.tensors):
        found.append(f"results {astray} lie on another device")
    all_theirs, all_mine = [*want.mover.tensors, *theirs], [*got.mover.tensors, *mine]
    if len(all_theirs) == len(all_mine):
        for what, rule in (("memory shared", compare.sharing), ("same objects", compare.identities)):
            if rule(all_theirs) != rule(all_mine):
                found.append(f"{what}: {rule(all_theirs)} != {rule(all_mine)} (arguments, then results)")
    if want.changed != got.changed:
        found.append(f"version counters moved: {want.changed} != {got.changed}")
    if values:
        found += _input_differences(want, got)
    if want.draws and got.again is not None:
        found += compare.differences(_on_cpu(got.result), _on_cpu(got.again), "second run with the same seed", values)
    return found


def _input_differences(want: Outcome, got: Outcome) -> list[str]:
    """The arguments' whole memory after the call, also what lies between and beside their elements."""
    found = []
    for i, (a, b) in enumerate(zip(want.mover.bases, got.mover.bases, strict=True)):
        if a.untyped_storage().nbytes() != b.untyped_storage().nbytes():
            found.append(f"memory of argument {i} has {b.untyped_storage().nbytes()} bytes after the call")
        if not torch.equal(a, b.cpu()):
            mine = [
                (x, y)
                for x, y in zip(want.mover.tensors, got.mover.tensors, strict=False)
                if x.untyped_storage()._cdata == a.untyped_storage()._cdata
            ]
            if not mine or not all(compare.agree(x, y.cpu()) for x, y in mine if x.size() == y.size()):
                found.append(f"memory of argument {i} differs after the call")
    return found


def _on_cpu(tree: Any) -> list[torch.Tensor]:
    return [t.detach().cpu() for t in tensors_of(tree)]


def _on_two_devices(error: Exception | None) -> bool:
    """Some operators take a 0-dim tensor from the CPU, others refuse it; both are right."""
    refusals = ("same device", "two devices", "too many CPU scalars")
    return isinstance(error, RuntimeError) and any(words in str(error) for words in refusals)


def _brief(error: Exception | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def compare_calls(calls: Sequence[Call], values: bool = True, lazy: bool = True) -> Report:
    """Runs the calls on both sides. Lazily: all are recorded before the first is read."""
    report = Report()
    pending: list[tuple[Call, Outcome, Outcome]] = []

    def settle() -> None:
        for call, want, got in pending:
            try:
                found = _differences(call, want, got, values)
            except Exception as problem:  # a graph that failed poisons what hangs on it; each such call is a failure
                found = [f"comparing raised {_brief(problem)}"]
            if found:
                report.failures.append((call, found))
        pending.clear()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in calls:
            try:
                want = _run_on_cpu(call)
                got = _run_on_device(call, want.draws)
            except NotStrided as reason:
                report.skipped[str(reason)] += 1
                continue
            report.calls[call.variant] += 1
            report.random += want.draws
            pending.append((call, want, got))
            if not lazy:
                settle()
        settle()
    if lazy and report.failures:  # one failing kernel takes its whole graph along: look at each by itself
        alone = compare_calls([call for call, _ in report.failures], values, lazy=False)
        together = [
            (call, [f"only when recorded together: {line}" for line in found])
            for call, found in report.failures
            if not any(call is other for other, _ in alone.failures)
        ]
        report.failures = alone.failures + together
    return report


def compare_op(
    op: OpInfo, dtype: torch.dtype, variants: Sequence[str] = VARIANTS, values: bool = True, lazy: bool = True
) -> Report:
    report = Report()
    calls = list(calls_of(op, dtype, variants))
    for variant in variants:  # one variant at a time bounds what is held
        report.add(compare_calls([call for call in calls if call.variant == variant], values, lazy))
    gc.collect(0)
    return report
