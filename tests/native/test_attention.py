"""Attention's own kernels against float64 and eager: sizes around the blocks, layouts, masks, extreme values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F

from support import device as under_test

D = under_test.NAME
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
# (batch, heads, queries, keys, depth): around blocks of 64, 128 and 256, odd numbers, single ones, unequal ones
SIZES = (
    (2, 3, 128, 128, 64),
    (1, 2, 64, 64, 64),
    (2, 2, 1, 1, 8),
    (1, 2, 1, 77, 16),
    (1, 2, 17, 33, 20),
    (1, 2, 63, 65, 31),
    (1, 3, 129, 127, 33),
    (2, 1, 257, 300, 72),
    (1, 2, 513, 513, 96),
    (1, 1, 70, 70, 256),
    (1, 1, 31, 65, 1),
    (2, 2, 16, 500, 64),
    (1, 1, 700, 150, 16),
)
# What float32 may be off relative to the size of the whole, where eager happens to be closer than that.
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 0.0, torch.float16: 0.0}


class Case(NamedTuple):
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    grad: torch.Tensor
    causal: bool = False
    mask: torch.Tensor | None = None
    scale: float | None = None


def case(size: tuple[int, ...], dtype: torch.dtype, **options: object) -> Case:
    """As projections leave them: [batch, rows, heads, depth], and where lengths agree side by side in one tensor."""
    batch, heads, queries, keys, depth = size
    random = torch.Generator().manual_seed(hash(size) % 1000)

    def noise(rows: int, parts: int = 1) -> list[torch.Tensor]:
        whole = torch.randn(batch, rows, parts * heads * depth, generator=random).to(dtype)
        return [part.view(batch, rows, heads, depth).transpose(1, 2) for part in whole.split(heads * depth, 2)]

    query, key, value = noise(queries, 3) if queries == keys else (*noise(queries), *noise(keys), *noise(keys))
    return Case(query, key, value, noise(queries)[0], **options)


def moved(t: torch.Tensor, device: str) -> torch.Tensor:
    """A leaf on the device, with holes where the tensor has some."""
    base = t if t._base is None else t._base
    return base.detach().to(device).as_strided(t.shape, t.stride(), t.storage_offset()).detach().requires_grad_()


def attend(given: Case, device: str) -> list[torch.Tensor]:
    """The output and the three gradients."""
    inputs = [moved(t, device) for t in given[:3]]
    mask = given.mask if given.mask is None else given.mask.to(device)
    out = F.scaled_dot_product_attention(*inputs, attn_mask=mask, is_causal=given.causal, scale=given.scale)
    gradients = torch.autograd.grad(out, inputs, moved(given.grad, device).detach())
    return [t.detach().cpu() for t in (out, *gradients)]


def exact(given: Case) -> list[torch.Tensor]:
    inputs = [t.detach().double().requires_grad_() for t in given[:3]]
    scale = given.query.shape[-1] ** -0.5 if given.scale is None else given.scale
    scores = inputs[0] @ inputs[1].mT * scale
    if given.mask is not None:
        scores = scores.masked_fill(~given.mask, -torch.inf) if given.mask.dtype == torch.bool else scores + given.mask
    if given.causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    # A row without keys gives zeros, as PyTorch's kernel does.
    dead = (scores == -torch.inf).all(-1, keepdim=True)
    out = scores.masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0) @ inputs[2]
    out.backward(given.grad.double())
    return [t.detach() for t in (out, *(i.grad for i in inputs))]


def distance(got: torch.Tensor, want: torch.Tensor, size: float) -> float:
    return (got.double() - want).norm().item() / max(want.norm().item(), size)


def check(given: Case) -> None:
    ours, eager, want = attend(given, D), attend(given, "cpu"), exact(given)
    for name, a, b, w in zip(("out", "query", "key", "value"), ours, eager, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride(), name
        size = 0.1 * w.numel() ** 0.5  # gradients that cancel are compared with the terms that do
        luck = 1.1 if w.numel() > 1000 else 1.5  # few numbers: either may be close by chance
        assert distance(a, w, size) <= luck * distance(b, w, size) + ROUNDING[a.dtype], name


@pytest.fixture(params=(1, 2), ids=("one thread", "two threads"))
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("causal", (False, True), ids=("full", "causal"))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(size: tuple[int, ...], dtype: torch.dtype, causal: bool) -> None:
    check(case(size, dtype, causal=causal))


def test_the_kernels_are_used() -> None:
    """Own sums of bfloat16 stay floats until the end, which shows in the gradient of a long sequence."""
    given = case((1, 2, 512, 512, 64), torch.bfloat16)
    ours, eager, want = attend(given, D), attend(given, "cpu"), exact(given)
    assert distance(ours[2], want[2], 0) < 0.9 * distance(eager[2], want[2], 0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", ("queries x keys", "whole", "one head", "keys", "queries", "one"))
@pytest.mark.parametrize("kind", ("bool", "float", "own type"))
def test_masks(kind: str, shape: str, dtype: torch.dtype) -> None:
    batch, heads, queries, keys, depth = 2, 3, 70, 133, 24
    sizes = {
        "queries x keys": (queries, keys),
        "whole": (batch, heads, queries, keys),
        "one head": (batch, 1, queries, keys),
        "keys": (batch, 1, 1, keys),
        "queries": (1, heads, queries, 1),
        "one": (1, 1),
    }
    noise = torch.randn(sizes[shape], generator=torch.Generator().manual_seed(3))
    mask = noise > -0.5 if kind == "bool" else noise.to(torch.float32 if kind == "float" else dtype)
    check(case((batch, heads, queries, keys, depth), dtype, mask=mask))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", (torch.bool, torch.float32), ids=str)
def test_rows_without_keys(kind: torch.dtype, dtype: torch.dtype) -> None:
    mask = torch.rand(150, 300, generator=torch.Generator().manual_seed(4)) > 0.5
    mask[3] = mask[77] = False
    mask[100, :280] = False  # its first keys are in the last block
    mask[120, 10:] = False
    additive = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    given = case((1, 2, 150, 300, 32), dtype, mask=mask if kind == torch.bool else additive)
    check(given)
    out, query, *_ = attend(given, D)
    assert (out[:, :, [3, 77]] == 0).all() and (query[:, :, [3, 77]] == 0).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("scale", (0.0, 1.0, -0.3, 2.5))
def test_scale(scale: float, dtype: torch.dtype) -> None:
    check(case((1, 2, 80, 80, 16), dtype, scale=scale))
    given = case((1, 2, 80, 80, 16), dtype, causal=True, scale=scale)
    if scale > 0:
        check(given)
    else:  # PyTorch's kernel turns the hidden keys into infinities or NaN
        for a, b in zip(attend(given, D), attend(given, "cpu"), strict=True):
            torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("causal", (False, True), ids=("full", "causal"))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_large_scores(dtype: torch.dtype, causal: bool) -> None:
    """Scores of +-1e4: nearly all weights are 0 or 1."""
    given = case((1, 2, 200, 200, 16), dtype, causal=causal)
    largest = (given.query.float() @ given.key.float().mT).abs().max().item()
    given = given._replace(scale=1e4 / largest)
    ours, eager, want = attend(given, D), attend(given, "cpu"), exact(given)
    for a, b, w in zip(ours, eager, want, strict=True):
        assert a.isfinite().all()
        # The scores' own rounding is a thousandth here, in eager as well.
        assert distance(a, w, 1) <= 1.5 * distance(b, w, 1) + 1e-3


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", (float("nan"), float("inf")))
@pytest.mark.parametrize("where", (0, 1, 2), ids=("query", "key", "value"))
def test_not_finite(where: int, bad: float, dtype: torch.dtype) -> None:
    given = case((1, 2, 70, 70, 16), dtype)
    inputs = [t.clone() for t in given[:3]]
    inputs[where][0, 0, 40, 3] = bad
    given = Case(*inputs, given.grad)
    # Not as in eager for infinities: its exponential makes something of infinity - infinity, so that rows are
    # sometimes finite.
    want = attend(given, "cpu") if bad != bad else exact(given)
    for a, b in zip(attend(given, D), want, strict=True):
        assert torch.equal(a.isfinite(), b.isfinite())
        assert torch.equal(a.isnan(), b.isnan())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_mask_of_nan_reaches_its_row(dtype: torch.dtype) -> None:
    mask = torch.full((40, 90), -torch.inf)
    mask[:, :50] = 0
    mask[7] = -torch.inf
    mask[7, 30] = torch.nan  # lost among infinities by a careless maximum
    out = attend(case((1, 1, 40, 90, 16), dtype, mask=mask), D)[0]
    assert out[0, 0, 7].isnan().all() and out[0, 0, :7].isfinite().all() and out[0, 0, 8:].isfinite().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", ((3, 3, 100, 100, 40), (1, 1, 400, 300, 64), (1, 3, 300, 300, 16)), ids=str)
def test_the_same_bits_every_time(size: tuple[int, ...], dtype: torch.dtype, threads: int) -> None:
    for causal in (False, True):
        given = case(size, dtype, causal=causal)
        first = attend(given, D)
        for _ in range(2):
            for a, b in zip(first, attend(given, D), strict=True):
                assert torch.equal(a, b)
        check(given)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts(dtype: torch.dtype) -> None:
    """Dense heads, batches of a batch-last tensor, rows with holes, and a gradient that is one number everywhere."""
    size = (2, 4, 50, 50, 32)
    base = case(size, dtype)

    def holes(t: torch.Tensor) -> torch.Tensor:
        room = torch.full((*t.shape[:-1], 45), torch.nan, dtype=t.dtype)
        room[..., 5:37] = t
        return room[..., 5:37]

    for change in (torch.Tensor.contiguous, holes, lambda t: t.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3)):
        for which in itertools.product((False, True), repeat=3):
            inputs = [change(t) if w else t for t, w in zip(base[:3], which, strict=True)]
            check(Case(*inputs, base.grad, causal=True))
    check(base._replace(grad=torch.full((), 0.5, dtype=dtype).expand(base.query.shape)))


def test_gradients_are_those_of_the_output() -> None:
    """Differences of the output along random directions, in float32."""
    given = case((1, 2, 40, 50, 12), torch.float32)
    _, *gradients = attend(given, D)
    random = torch.Generator().manual_seed(5)
    for which in range(3):
        direction = torch.randn(given[which].shape, generator=random)
        step = 1e-2

        sums = []
        for by in (step, -step):
            inputs = list(given[:3])
            inputs[which] = inputs[which] + by * direction
            out = F.scaled_dot_product_attention(*(t.to(D) for t in inputs)).cpu()
            sums.append((out.double() * given.grad.double()).sum())
        slope = (sums[0] - sums[1]) / (2 * step)
        along = (gradients[which].double() * direction.double()).sum()
        torch.testing.assert_close(along, slope, rtol=2e-3, atol=2e-2)


def test_shared_keys() -> None:
    """Fewer heads of keys than of queries."""
    random = torch.Generator().manual_seed(6)
    query = torch.randn(2, 4, 30, 16, generator=random)
    key, value = (torch.randn(2, 2, 30, 16, generator=random) for _ in range(2))
    want = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    got = F.scaled_dot_product_attention(query.to(D), key.to(D), value.to(D), enable_gqa=True).cpu()
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("case", ((2, 4, 2, 128, 128, 64, True), (2, 6, 3, 33, 70, 32, False), (1, 8, 1, 17, 200, 64, False)))
def test_heads_that_share_their_keys(case: tuple, dtype: torch.dtype) -> None:
    """Fewer heads of keys than of queries: the gradients of a shared head are the sums over those that share it."""
    batch, heads, shared, queries, keys, depth, causal = case
    torch.manual_seed(0)

    def make(rows: int, count: int) -> torch.Tensor:
        return torch.randn(batch, rows, count, depth).to(dtype).transpose(1, 2)

    q, k, v, grad = make(queries, heads), make(keys, shared), make(keys, shared), make(queries, heads)

    def program(device: str, wide: bool = False) -> list[torch.Tensor]:
        leaves = [t.clone().to(device, torch.float64 if wide else dtype).requires_grad_() for t in (q, k, v)]
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
        out.backward(grad.to(out))
        return [out.detach(), *(leaf.grad for leaf in leaves)]

    exact = program("cpu", wide=True)
    for want, eager, ours in zip(exact, program("cpu"), program(under_test.NAME), strict=True):
        assert eager.shape == ours.shape and eager.stride() == ours.stride()
        largest = float(want.abs().max())
        bound = max(1.5 * float((eager.double() - want).abs().max()), 1.5e-6 * largest)
        assert float((ours.cpu().double() - want).abs().max()) <= bound
