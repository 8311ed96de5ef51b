"""Scalars are inputs: their kind decides the result's dtype, their value never the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from support import compare
from support import device as under_test
from support.device import counted

pytestmark = pytest.mark.lazy

KINDS = (True, 3, 2.5, 1 + 2j)
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
)


@pytest.mark.parametrize("scalar", KINDS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_promotion(dtype: torch.dtype, scalar: object) -> None:
    """Python numbers and 0-dim tensors, on either side, with tensors that have dimensions and that have none."""
    others = [scalar, torch.tensor(scalar), torch.tensor(scalar).to(under_test.NAME)]
    for host in (torch.tensor([0, 1, 1]).to(dtype), torch.tensor(1).to(dtype)):
        x = host.to(under_test.NAME)
        for other in others:
            on_cpu = other.cpu() if isinstance(other, torch.Tensor) else other
            for call in (torch.mul, torch.add, torch.true_divide, lambda a, b: torch.where(a == 1, a, b)):
                found = compare.differences(call(host, on_cpu), call(x, other))
                assert not found, found
                if isinstance(other, torch.Tensor) and not (other.device.type == "cpu" and x.dim() == 0):
                    assert not compare.differences(call(on_cpu, host), call(other, x))


def test_64_bit_integers_survive() -> None:
    big = 2**62 + 1
    x = torch.tensor([0, 5]).to(under_test.NAME)
    assert (x + big).tolist() == [big, big + 5]
    assert torch.full((2,), big, device=under_test.NAME).tolist() == [big, big]
    assert x.fill_(big).tolist() == [big, big]
    assert (torch.tensor([big]).to(under_test.NAME) == big).item()
    assert x.clamp(max=big - 1).tolist() == [big - 1, big - 1]
    assert torch.tensor([3], device=under_test.NAME).sub(big).item() == 3 - big


def test_doubles_survive() -> None:
    third = 1 / 3
    x = torch.zeros(2, dtype=torch.float64).to(under_test.NAME)
    assert (x + third).tolist() == [third, third]
    assert x.fill_(third).tolist() == [third, third]
    assert x.copy_(torch.tensor([third, 1e300], dtype=torch.float64)).tolist() == [third, 1e300]


@pytest.mark.parametrize("value", (float("inf"), float("-inf"), float("nan"), -0.0, 1e-310, 1e308))
def test_special_values(value: float) -> None:
    host = torch.tensor([1.0, -2.0], dtype=torch.float64)
    for call in (
        lambda t: t * value,
        lambda t: t + value,
        lambda t: torch.full_like(t, value),
        lambda t: t.clamp(min=value),
    ):
        assert not compare.differences(call(host), call(host.to(under_test.NAME)))


def test_a_host_scalar_is_read_when_recorded() -> None:
    scale = torch.tensor(2.0)
    x = torch.ones(3).to(under_test.NAME)
    y = x * scale
    scale.fill_(100)
    assert y.tolist() == [2, 2, 2]


def test_a_host_scalar_makes_no_graph_of_its_own() -> None:
    x = torch.ones(3).to(under_test.NAME)
    scale = torch.tensor(0.0)

    def step(i: int) -> None:
        scale.fill_(i)
        assert (x * scale).tolist() == [i, i, i]

    step(0)
    _, rose = counted(lambda: [step(i) for i in range(1, 8)], "graphs_planned")
    assert rose["graphs_planned"] == 0


@pytest.mark.parametrize("exponents", ((2.0, 3.0, 0.5, -1.0, 1.5, 0.0, 1.0), (2, 3, 0, 1)))
def test_special_exponents_are_no_new_graphs(exponents: tuple) -> None:
    host = torch.tensor([0.5, 2.0, 3.0])
    x = host.to(under_test.NAME)

    def power(e: float) -> None:
        assert not compare.differences(host**e, x**e)

    power(exponents[-1] + 4)
    _, rose = counted(lambda: [power(e) for e in exponents], "graphs_planned")
    assert rose["graphs_planned"] == 0


# For each kind of argument, calls that differ in the value of that argument alone.
INPUTS: dict[str, tuple[Callable[[torch.Tensor, Any], Any], tuple[Any, ...]]] = {
    "Scalar": (lambda t, v: t * v, (0.5, 1.0, 2.0, 0.0, -1.0)),
    "Scalar, a factor of one": (lambda t, v: t.add(t, alpha=v), (0.5, 1.0, 2.0, 0.0)),
    "Scalar, integer": (lambda t, v: t.sub(t, alpha=v), (1, 2, 0)),
    "Scalar, bool": (lambda t, v: torch.where(t > 0, v, False), (True, False, True)),
    "Scalar, complex": (lambda t, v: t * v, (1j, 2 + 1j, 1 + 0j)),
    "two Scalars": (lambda t, v: torch.addmm(t, t, t, beta=v, alpha=2 * v), (0.25, 1.0, 0.5, 0.0)),
    "Scalar?": (lambda t, v: t.clamp(min=v), (0.1, 0.2, 0.3)),
    "Scalar? that corrects": (lambda t, v: t.std(correction=v), (1, 2, 0)),
    "Scalar[]": (lambda t, v: torch._foreach_mul([t, t], [v, v + 1]), (0.1, 0.2, 0.3)),
    "Scalar[] of one factor": (lambda t, v: torch._foreach_addcdiv([t, t], [t, t], [t, t], [v, v]), (0.1, 0.2)),
    "float": (lambda t, v: F.layer_norm(t, (4,), eps=v), (1e-5, 1e-3, 0.1)),
    "float?": (lambda t, v: t.nan_to_num(v), (0.1, 0.2, 0.3)),
    "float? scale": (lambda t, v: F.scaled_dot_product_attention(*[t[None, None]] * 3, scale=v), (0.1, 0.5, 1.0)),
}


@pytest.mark.parametrize("call, values", INPUTS.values(), ids=INPUTS)
def test_values_of_each_kind_are_inputs(call, values: tuple) -> None:
    host = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    x = host.to(under_test.NAME)

    def course(value: object) -> None:
        assert not compare.differences(call(host, value), call(x, value)), value

    course(values[0])
    _, rose = counted(lambda: [course(value) for value in values[1:]], "graphs_planned")
    assert rose["graphs_planned"] == 0


STATIC: dict[str, Callable[[torch.Tensor], list[Any]]] = {
    "bool": lambda t: [t.sum(0, keepdim=k) for k in (False, True, False)],
    "int": lambda t: [t.sum(k) for k in (0, 1, 0)] + [t.roll(k, 0) for k in (1, 2, 1)],
    "int that is a size": lambda t: [torch.histc(t, k, -1, 1) for k in (3, 5, 3)] + [t.topk(k) for k in (1, 3, 1)],
    "int that is a size, of a composite": lambda t: [torch.combinations(t[0], k) for k in (2, 3, 2)],
    "int[]": lambda t: [t.repeat(k, 2) for k in (1, 2, 1)] + [F.pad(t, k) for k in ((1, 1), (0, 2), (1, 1))],
    "ScalarType": lambda t: [t.sum(dtype=k) for k in (torch.float64, torch.float32, torch.float64)],
    "str": lambda t: (
        [F.gelu(t, approximate=k) for k in ("none", "tanh", "none")]
        + [(t * 5).div(2, rounding_mode=k) for k in ("floor", "trunc", None)]
        + [t.scatter_reduce(0, (t > 0).long(), t, k) for k in ("sum", "amax", "prod")]
    ),
    "float that fixes a size": lambda t: [F.interpolate(t[None, None], scale_factor=k) for k in (2.0, 1.5, 2.0)],
}


@pytest.mark.parametrize("calls", STATIC.values(), ids=STATIC)
def test_integers_flags_types_and_words_are_static(calls) -> None:
    """The same operator on the same tensor, called in other ways: neither shapes nor graphs are mixed up."""
    host = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    x = host.to(under_test.NAME)
    for _ in range(2):
        assert not compare.differences(calls(host), calls(x))


def test_scalars_that_fix_a_shape_are_static() -> None:
    for stop in (3, 7, 3, 12):
        assert torch.arange(stop, device=under_test.NAME).tolist() == list(range(stop))
        assert torch.arange(0, stop / 2, 0.5, device=under_test.NAME).numel() == stop
        assert torch.linspace(0, 1, stop, device=under_test.NAME).numel() == stop


def test_scalars_that_choose_an_algorithm_are_right() -> None:
    host = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    x = host.to(under_test.NAME)
    for order in (1, 2, 0, float("inf"), float("-inf"), 3, 2.5, 2):
        assert not compare.differences(torch.linalg.vector_norm(host, order), torch.linalg.vector_norm(x, order)), order
        if order >= 0:
            assert not compare.differences(torch.cdist(host, host, p=order), torch.cdist(x, x, p=order)), order


def test_a_scalar_argument_of_each_call_of_one_graph() -> None:
    """Many slots, and the same value twice is not one slot."""

    def chain(values: list[float]) -> list[float]:
        x = torch.ones(2).to(under_test.NAME)
        for v in values:
            x = x * v + v
        return x.tolist()

    def expected(values: list[float]) -> list[float]:
        x = torch.ones(2)
        for v in values:
            x = x * v + v
        return x.tolist()

    for values in ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0], [3.0, 3.0, 1.0], [0.5, 2.0, 0.5]):
        assert chain(values) == expected(values)
