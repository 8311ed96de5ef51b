"""Scalars are inputs: their kind decides the result's dtype, their value never the graph."""

from __future__ import annotations

import pytest
import torch

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
