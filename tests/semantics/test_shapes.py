"""Sizes and strides are known while recording, and are the CPU's, whatever layout a kernel prefers."""

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


def image(device: str, channels: int = 3) -> torch.Tensor:
    """Channels last."""
    x = torch.arange(2 * channels * 64, device=device).reshape(2, channels, 8, 8) / 7
    return x.to(memory_format=torch.channels_last)


def cube(device: str) -> torch.Tensor:
    """Its strides in no order."""
    return (torch.arange(24, device=device).reshape(2, 3, 4) / 7).permute(2, 0, 1)


LAYOUTS: dict[str, Callable[[str], Any]] = {
    "channels last": lambda d: image(d) * 2,
    "convolution": lambda d: F.conv2d(image(d), torch.ones(4, 3, 3, 3, device=d)),
    "convolution, contiguous": lambda d: F.conv2d(image(d).contiguous(), torch.ones(4, 3, 3, 3, device=d)),
    "convolution, one channel": lambda d: F.conv2d(image(d, 1), torch.ones(1, 1, 3, 3, device=d)),
    "transposed convolution": lambda d: F.conv_transpose2d(image(d), torch.ones(3, 4, 3, 3, device=d)),
    "pooling": lambda d: F.max_pool2d(image(d), 2),
    "batch norm": lambda d: F.batch_norm(image(d), None, None, training=True),
    "cat of images": lambda d: torch.cat([image(d), image(d)], 1),
    "interpolation": lambda d: F.interpolate(image(d), scale_factor=2),
    "expanded": lambda d: torch.ones(3, 1, device=d).expand(3, 4) + 1,
    "both expanded": lambda d: torch.ones(1, 4, device=d).expand(3, 4) * torch.ones(3, 1, device=d).expand(3, 4),
    "clone of expanded": lambda d: torch.ones(3, 1, device=d).expand(3, 4).clone(),
    "permuted": lambda d: cube(d).exp(),
    "two orders": lambda d: torch.ones(3, 4, device=d).t() + torch.ones(4, 3, device=d),
    "with gaps": lambda d: torch.ones(4, 6, device=d)[:, ::2] * 2,
    "to another dtype": lambda d: cube(d).to(torch.float64),
    "like": lambda d: [torch.zeros_like(cube(d)), torch.full_like(cube(d), 2), torch.ones_like(image(d))],
    "reduction": lambda d: [cube(d).sum(1), cube(d).amax(0, keepdim=True), cube(d).cumsum(0)],
    "sort": lambda d: cube(d).sort(0),
    "gathering": lambda d: cube(d)[torch.tensor([0, 1], device=d)],
    "products": lambda d: [torch.ones(2, 3, 4, device=d) @ torch.ones(4, 5, device=d), cube(d) @ cube(d).mT],
    "transform": lambda d: torch.fft.rfft2(cube(d)),
    "attention": lambda d: F.scaled_dot_product_attention(*[torch.ones(2, 5, 3, 8, device=d).transpose(1, 2)] * 3),
    "no elements": lambda d: torch.ones(0, 3, device=d).t() + 1,
    "out=": lambda d: [
        torch.add(cube(d), 1, out=torch.empty(0, device=d)),
        torch.add(cube(d), 1, out=torch.empty(3, 4, 2, device=d).permute(1, 2, 0)),
    ],
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_strides_are_the_cpus_before_anything_runs(make) -> None:
    want = make("cpu")
    make(under_test.NAME)  # learns what has to be tried once
    under_test.sync()
    got, rose = counted(lambda: make(under_test.NAME), "graphs_ended", "syncs", "ops_run_now")
    assert not compare.differences(want, got, values=False)
    assert not any(rose.values()), rose
    assert not compare.differences(want, got)


def test_strides_of_factorizations_are_the_cpus() -> None:
    """They look at contents, so they wait; the layout that LAPACK leaves is seen all the same."""

    def course(device: str) -> list[torch.Tensor]:
        x = torch.eye(3, device=device).expand(2, 3, 3) * 2
        return [torch.linalg.cholesky(x), torch.linalg.inv(x), torch.linalg.solve(x, x), *torch.linalg.qr(x)]

    assert not compare.differences(course("cpu"), course(under_test.NAME))


def test_strides_of_gradients_are_the_cpus() -> None:
    def course(device: str) -> list[torch.Tensor]:
        x, w = image(device).requires_grad_(), torch.ones(4, 3, 3, 3, device=device).requires_grad_()
        b = torch.ones(3, 1, device=device).requires_grad_()
        (F.conv2d(x, w).sum() + (b.expand(3, 4) * 2).sum() + (b.t() @ b).sum()).backward()
        return [x.grad, w.grad, b.grad]

    assert not compare.differences(course("cpu"), course(under_test.NAME))


IN_PLACE: dict[str, Callable[[str], Any]] = {
    "add_": lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)),
    "mul_ of integers": lambda d: torch.ones(3, dtype=torch.int64, device=d).mul_(0.5),
    "div_ of integers": lambda d: torch.ones(3, dtype=torch.int64, device=d).div_(2),
    "sub_ of complex numbers": lambda d: torch.ones(3, device=d).sub_(1j),
    "clamp_": lambda d: torch.ones(3, device=d).clamp_(torch.ones(2, 3, device=d)),
    "addmm_": lambda d: torch.ones(3, device=d).addmm_(torch.ones(2, 2, device=d), torch.ones(2, 3, device=d)),
    "erf_ of integers": lambda d: torch.arange(3, device=d).erf_(),
    "copy_": lambda d: torch.ones(3, device=d).copy_(torch.ones(4, device=d)),
    "out= of integers": lambda d: torch.add(torch.ones(2, device=d), 1, out=torch.ones(2, dtype=torch.int64, device=d)),
    "mm out= of another dtype": lambda d: torch.mm(
        torch.ones(2, 2, device=d), torch.ones(2, 2, device=d), out=torch.ones(2, 2, dtype=torch.float64, device=d)
    ),
}


@pytest.mark.parametrize("call", IN_PLACE.values(), ids=IN_PLACE)
def test_in_place_and_out_forms_check_size_and_type_at_once(call) -> None:
    """In the CPU's words, and what was pending is not lost."""
    with pytest.raises(Exception) as eager:
        call("cpu")
    pending = torch.ones(3, device=under_test.NAME) + 1
    with pytest.raises(eager.type) as lazy:
        call(under_test.NAME)
    assert str(lazy.value).split("\n")[0].replace(under_test.NAME, "cpu") == str(eager.value).split("\n")[0]
    assert pending.tolist() == [2] * 3


NEW_SHAPES: dict[str, Callable[[torch.Tensor], object]] = {
    "functional": lambda x: [x + 1, x * x, x.sum(0), x @ x.t(), x.exp(), x.softmax(1)],
    "in place": lambda x: x.add_(1).mul_(x).exp_().clamp_(0, 1),
    "in place with another dtype": lambda x: x.add_(x.to(torch.float64)),
    "in place on a part": lambda x: x[1:].mul_(x[:1]),
    "out=": lambda x: [torch.add(x, 1, out=torch.empty_like(x)), torch.sum(x, 0, out=torch.empty_like(x[0]))],
    "out= of another dtype": lambda x: torch.mul(x, 2, out=torch.empty_like(x, dtype=torch.float64)),
    "matmul out=": lambda x: torch.mm(x, x.t(), out=torch.empty(x.size(0), x.size(0), device=x.device)),
}


@pytest.mark.parametrize("call", NEW_SHAPES.values(), ids=NEW_SHAPES)
def test_shapes_that_were_never_seen_are_inferred_without_looking_at_memory(call) -> None:
    sizes = ((211, 7), (223, 5))  # of no other test
    given = [torch.ones(size, device=under_test.NAME) for size in sizes]
    results, rose = counted(
        lambda: [call(x) for x in given], "graphs_ended", "syncs", "ops_run_now", "shape_cache_misses"
    )
    assert rose.pop("shape_cache_misses") > 0
    assert not any(rose.values()), rose
    assert not compare.differences([call(torch.ones(size)) for size in sizes], results)
