"""Random numbers: what each op draws, how far it moves the generator, and that a seed repeats it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from support import device as under_test

pytestmark = pytest.mark.lazy

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

Fill = Callable[[torch.Tensor], torch.Tensor]

# name, what fills a tensor, the dtypes it takes beyond the floating ones
FILLS: list[tuple[str, Fill, tuple[torch.dtype, ...]]] = [
    ("uniform_", lambda t: t.uniform_(-2, 3), (torch.complex64, torch.complex128)),
    ("normal_", lambda t: t.normal_(1, 2), (torch.complex64, torch.complex128)),
    ("bernoulli_", lambda t: t.bernoulli_(0.3), (*INTEGERS, torch.bool)),
    ("exponential_", lambda t: t.exponential_(1.5), ()),
    ("cauchy_", lambda t: t.cauchy_(0, 2), ()),
    ("log_normal_", lambda t: t.log_normal_(0, 0.5), ()),
    ("geometric_", lambda t: t.geometric_(0.25), INTEGERS),
    ("random_", lambda t: t.random_(), (*INTEGERS, torch.bool)),
    ("random_(to)", lambda t: t.random_(100), INTEGERS),
    ("random_(from, to)", lambda t: t.random_(3, 90), INTEGERS),
]
CASES = [
    pytest.param(fill, dtype, id=f"{name} {str(dtype).removeprefix('torch.')}")
    for name, fill, more in FILLS
    for dtype in (*FLOATS, *more)
]


def state() -> tuple[int, int]:
    seed, offset = torch.sinter.get_rng_state().view(torch.int64).tolist()
    return seed, offset


def drawn(action: Callable[[], object]) -> int:
    """How far the generator moves."""
    before = state()
    action()
    after = state()
    assert after[0] == before[0]
    return after[1] - before[1]


def counters(n: int, wide: bool) -> int:
    return math.ceil(n / 4) * (2 if wide else 1)


@pytest.mark.parametrize(("fill", "dtype"), CASES)
def test_the_same_seed_gives_the_same_numbers_and_the_next_call_others(fill: Fill, dtype: torch.dtype, device: str):
    torch.manual_seed(7)
    first = fill(torch.empty(1000, dtype=dtype, device=device))
    second = fill(torch.empty(1000, dtype=dtype, device=device))
    torch.manual_seed(7)
    again = fill(torch.empty(1000, dtype=dtype, device=device))
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), second.cpu())


@pytest.mark.parametrize(("fill", "dtype"), CASES)
def test_elements_are_numbered_in_row_major_order_whatever_the_strides(fill: Fill, dtype: torch.dtype, device: str):
    torch.manual_seed(3)
    want = fill(torch.empty(5, 7, 3, 4, dtype=dtype, device=device)).cpu()
    whole = torch.zeros(7, 2, 4, 5, 3, dtype=dtype, device=device)
    torch.manual_seed(3)
    part = fill(whole[:, 1].permute(2, 0, 3, 1))
    assert part.shape == want.shape
    assert not part.is_contiguous()
    assert torch.equal(part.cpu(), want)
    assert not whole[:, 0].cpu().any(), "elements beside the view were written"


@pytest.mark.parametrize(("fill", "dtype"), CASES)
def test_the_generator_moves_by_exactly_what_is_drawn(fill: Fill, dtype: torch.dtype, device: str):
    wide = dtype in (torch.float64, torch.complex128)
    name = next(name for name, f, _ in FILLS if f is fill)
    if name.startswith("random_") or (name == "geometric_" and dtype in INTEGERS):
        wide = True
    if name == "bernoulli_":
        wide = False
    for n in (0, 1, 4, 5, 1001):
        parts = n * (2 if dtype.is_complex else 1)
        tensor = torch.empty(n, dtype=dtype, device=device)
        assert drawn(lambda t=tensor: fill(t)) == counters(parts, wide), n


def test_reading_the_state_does_not_wait(device: str):
    under_test.sync()
    _, counts = under_test.counted(lambda: (torch.randn(10, device=device), state()), "syncs", "kernels_run")
    assert counts["syncs"] == 0


# ---------------------------------------------------------------- distributions


def moments(values: torch.Tensor) -> tuple[float, float]:
    values = values.cpu().double()
    return values.mean().item(), values.std().item()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_moments(dtype: torch.dtype, device: str):
    torch.manual_seed(0)
    n = 200_000
    make = lambda: torch.empty(n, dtype=dtype, device=device)  # noqa: E731
    assert moments(make().uniform_(-1, 3)) == pytest.approx((1, 4 / math.sqrt(12)), abs=0.02)
    assert moments(make().normal_(1, 2)) == pytest.approx((1, 2), abs=0.02)
    assert moments(make().bernoulli_(0.3)) == pytest.approx((0.3, math.sqrt(0.21)), abs=0.01)
    assert moments(make().exponential_(2)) == pytest.approx((0.5, 0.5), abs=0.01)
    assert moments(make().geometric_(0.25)) == pytest.approx((4, math.sqrt(12)), abs=0.06)
    log_mean = math.exp(0.125)
    assert moments(make().log_normal_(0, 0.5)) == pytest.approx(
        (log_mean, log_mean * math.sqrt(math.expm1(0.25))), abs=0.02
    )
    quartiles = torch.quantile(make().cauchy_(1, 2).cpu().double(), torch.tensor([0.25, 0.5, 0.75]).double())
    assert quartiles.tolist() == pytest.approx([-1, 1, 3], abs=0.06)


def test_complex_normal_shares_its_variance_between_both_parts(device: str):
    torch.manual_seed(0)
    values = torch.randn(100_000, dtype=torch.complex64, device=device).cpu()
    assert moments(values.real) == pytest.approx((0, math.sqrt(0.5)), abs=0.01)
    assert moments(values.imag) == pytest.approx((0, math.sqrt(0.5)), abs=0.01)
    assert abs((values.real * values.imag).mean()) < 0.01


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_never_reaches_its_upper_bound(dtype: torch.dtype, device: str):
    torch.manual_seed(0)
    for low, high in ((0.0, 1.0), (1.0, 1.1), (-3.0, -2.9)):
        values = torch.empty(50_000, dtype=dtype, device=device).uniform_(low, high).cpu()
        top = torch.tensor(high, dtype=dtype)
        assert values.max() < top
        assert values.min() >= torch.tensor(low, dtype=dtype)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS), ids=str)
def test_random_stays_in_its_range_and_reaches_both_ends(dtype: torch.dtype, device: str):
    torch.manual_seed(0)
    values = torch.empty(20_000, dtype=dtype, device=device).random_(-5 if dtype.is_signed else 0, 12).cpu()
    assert values.min() == (-5 if dtype.is_signed else 0)
    assert values.max() == 11
    values = torch.empty(20_000, dtype=dtype, device=device).random_().cpu()
    assert values.min() >= 0
    top = torch.iinfo(dtype).max if dtype in INTEGERS else 2 ** -round(math.log2(torch.finfo(dtype).eps)) * 2
    assert float(values.max()) <= top
    assert float(values.max()) > 0.99 * top


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (torch.float16, 0, 65504),
        (torch.float16, -2051, -2047),
        (torch.bfloat16, 255, 517),
        (torch.bfloat16, -1027, 1030),
        (torch.float32, 2**24 - 2, 2**24 + 7),
    ],
)
def test_random_stays_in_a_range_whose_ends_the_type_cannot_hold(dtype: torch.dtype, low: int, high: int, device: str):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these ends are beyond what PyTorch promises for the type
        values = torch.empty(20_000, dtype=dtype, device=device).random_(low, high)
    values = values.cpu().double()
    assert values.min() >= low
    assert values.max() < high


def test_random_over_all_of_int64(device: str):
    torch.manual_seed(0)
    values = torch.empty(1000, dtype=torch.int64, device=device).random_(torch.iinfo(torch.int64).min, None).cpu()
    assert (values < 0).sum().item() == pytest.approx(500, abs=80)
    assert values.abs().max() > 2**62


# ---------------------------------------------------------------- bernoulli of a tensor, normal of tensors


@pytest.mark.parametrize("p_dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bool, torch.int64, torch.bfloat16), ids=str)
def test_bernoulli_of_probabilities(dtype: torch.dtype, p_dtype: torch.dtype, device: str):
    torch.manual_seed(0)
    p = torch.tensor([0.0, 0.25, 1.0], dtype=p_dtype, device=device)
    values = torch.empty(40_000, 3, dtype=dtype, device=device).bernoulli_(p).cpu().double()
    assert values.mean(0).tolist() == pytest.approx([0, 0.25, 1], abs=0.01)
    torch.manual_seed(0)
    again = torch.empty(3, 40_000, dtype=dtype, device=device).t().bernoulli_(p)
    assert torch.equal(again.cpu().double(), values)


def test_bernoulli_functional_out_and_onto_itself(device: str):
    p = torch.rand(1000, device=device)
    torch.manual_seed(5)
    want = torch.bernoulli(p)
    torch.manual_seed(5)
    out = torch.empty(0, device=device)
    torch.bernoulli(p, out=out)
    assert torch.equal(out, want)
    torch.manual_seed(5)
    assert torch.equal(p.clone().bernoulli_(p), want)
    torch.manual_seed(5)
    onto = p.clone()
    assert torch.equal(onto.bernoulli_(onto), want)
    assert set(want.cpu().tolist()) == {0.0, 1.0}


def test_bernoulli_refuses_what_is_no_probability_when_it_runs(device: str):
    for bad in (1.5, -0.25, float("nan")):
        p = torch.full((10,), bad, device=device)
        with pytest.raises(RuntimeError, match="p_in >= 0 && p_in <= 1"):
            torch.bernoulli(p).cpu()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal_of_tensors(dtype: torch.dtype, device: str):
    mean = torch.tensor([0.0, 10.0], dtype=dtype, device=device)
    std = torch.tensor([[1.0], [0.5], [0.0]], dtype=dtype, device=device)
    n = 20_000
    for make, shape in (
        (lambda **k: torch.normal(mean.expand(n, 2), 0.5, **k), (n, 2)),
        (lambda **k: torch.normal(4.0, std.expand(3, n), **k), (3, n)),
        (lambda **k: torch.normal(mean, std.expand(n, 3, 1), **k), (n, 3, 2)),
    ):
        torch.manual_seed(1)
        wide = dtype == torch.float64
        before = state()
        values = make()
        assert state()[1] - before[1] == counters(math.prod(shape), wide)
        assert values.shape == shape
        assert values.dtype == dtype
        torch.manual_seed(1)
        out = torch.empty(shape, dtype=dtype, device=device)
        make(out=out)
        assert torch.equal(out, values)
    values = values.cpu().double()
    assert values.mean(0).flatten().tolist() == pytest.approx([0, 10] * 3, abs=0.03)
    assert values.std(0)[:, 0].tolist() == pytest.approx([1, 0.5, 0], abs=0.03)
    with pytest.raises(RuntimeError, match="normal expects all elements of std >= 0"):
        torch.normal(mean, torch.tensor([1.0, -1.0], dtype=dtype, device=device)).cpu()


# ---------------------------------------------------------------- dropout


def dropped(x: torch.Tensor, mask: torch.Tensor, p: float) -> torch.Tensor:
    """What the op makes of its mask: the scale is rounded to the tensor's type, the product once more."""
    scale = torch.tensor(0.0 if p == 1 else 1 / (1 - p), dtype=x.dtype)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (x * mask).to(wide).mul_(scale.to(wide)).to(x.dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_dropout_keeps_and_scales(p: float, dtype: torch.dtype, device: str):
    torch.manual_seed(0)
    x = torch.randn(300, 200, dtype=dtype, device=device)
    for input in (x, x.t(), x[::2]):
        on_cpu = torch.native_dropout(input.cpu(), p, True)
        assert torch.equal(on_cpu[0], dropped(input.cpu(), on_cpu[1], p))
        output, mask = torch.native_dropout(input, p, True)
        want = dropped(input.cpu(), mask.cpu(), p)
        assert mask.dtype == torch.bool
        assert torch.equal(output.cpu(), want)
        assert output.stride() == want.stride()
        assert mask.float().mean().item() == pytest.approx(1 - p, abs=0.01)


def test_dropout_mask_does_not_depend_on_strides(device: str):
    x = torch.ones(60, 50, device=device)
    torch.manual_seed(2)
    _, straight = torch.native_dropout(x, 0.5, True)
    torch.manual_seed(2)
    _, turned = torch.native_dropout(torch.ones(50, 60, device=device).t(), 0.5, True)
    assert torch.equal(straight.cpu(), turned.cpu())


def test_dropout_outside_training_draws_nothing(device: str):
    x = torch.randn(100, device=device)
    output, mask = torch.native_dropout(x, 0.5, False)
    assert torch.equal(output, x)
    assert output.data_ptr() != x.data_ptr()
    assert mask.cpu().all()
    assert drawn(lambda: torch.native_dropout(x, 0.5, False)) == 0
    assert drawn(lambda: torch.nn.functional.dropout(x, 0.5, training=False)) == 0
    assert drawn(lambda: torch.nn.functional.dropout(x, 0.0)) == 0
    assert drawn(lambda: torch.nn.functional.dropout(x, 0.5)) == 25


def test_dropout_of_infinities_is_as_in_eager(device: str):
    x = torch.tensor([math.inf, -math.inf, math.nan, -1.0], device=device).repeat(50)
    output, mask = torch.native_dropout(x, 0.5, True)
    want = (x.cpu() * mask.cpu()).mul_(2.0)
    assert torch.equal(
        output.cpu().view(torch.int32).bitwise_and(0x7FFFFFFF), want.view(torch.int32).bitwise_and(0x7FFFFFFF)
    )
    assert torch.equal(torch.signbit(output.cpu()[3::4]), torch.signbit(want[3::4]))


def test_dropout_gradient_uses_the_same_mask(device: str):
    x = torch.ones(1000, device=device, requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_dropout_leaves_the_cpu_generator_alone(device: str):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for shape in ((3,), (17, 5), (2, 2, 2)):
        torch.nn.functional.dropout(torch.ones(shape, device=device).transpose(0, -1), 0.5).sum().item()
        torch.native_dropout(torch.ones(0, device=device), 0.5, True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "module",
    [torch.nn.Dropout(0.3), torch.nn.Dropout1d(0.3), torch.nn.AlphaDropout(0.3), torch.nn.FeatureAlphaDropout(0.3)],
    ids=lambda m: type(m).__name__,
)
def test_dropout_modules(module: torch.nn.Module, device: str):
    x = torch.randn(20, 30, 10, device=device)
    torch.manual_seed(4)
    first, second = module(x), module(x)
    torch.manual_seed(4)
    again = module(x)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    module.eval()
    assert torch.equal(module(x), x)
    module.train()


# ---------------------------------------------------------------- seeds and generators


def test_a_generator_of_ones_own(device: str):
    torch.manual_seed(0)
    default = state()
    one = torch.Generator(device).manual_seed(42)
    a = torch.randn(100, device=device, generator=one)
    b = torch.randn(100, device=device, generator=one)
    assert one.get_offset() == 50
    assert state() == default
    one.manual_seed(42)
    assert torch.equal(torch.randn(100, device=device, generator=one), a)
    saved = one.get_state()
    assert torch.equal(torch.randn(100, device=device, generator=one), b)
    one.set_state(saved)
    assert torch.equal(torch.randn(100, device=device, generator=one), b)
    other = one.clone_state()
    assert torch.equal(torch.rand(9, device=device, generator=other), torch.rand(9, device=device, generator=one))
    assert one.initial_seed() == 42


def test_the_default_generator_and_one_with_the_same_seed_agree(device: str):
    torch.manual_seed(11)
    want = torch.randn(33, device=device)
    own = torch.Generator(device).manual_seed(11)
    assert torch.equal(torch.randn(33, device=device, generator=own), want)


def test_a_cpu_generator_is_refused(device: str):
    with pytest.raises(RuntimeError, match="Expected a 'sinter' device type for generator but found 'cpu'"):
        torch.empty(3, device=device).normal_(generator=torch.Generator())


def test_fork_rng(device: str):
    torch.manual_seed(1)
    before = state()
    with torch.random.fork_rng(device_type="sinter"):
        torch.manual_seed(99)
        torch.randn(10, device=device)
    assert state() == before


def test_rng_state_round_trip_while_work_is_pending(device: str):
    torch.manual_seed(1)
    torch.randn(10, device=device)
    saved = torch.sinter.get_rng_state()
    want = torch.randn(10, device=device)
    torch.sinter.set_rng_state(saved)
    assert torch.equal(torch.randn(10, device=device), want)


def test_the_seed_of_a_pending_op_is_the_one_of_its_time(device: str):
    torch.manual_seed(1)
    want = torch.randn(10, device=device).cpu()
    torch.manual_seed(1)
    pending = torch.randn(10, device=device)
    torch.manual_seed(2)
    torch.randn(10, device=device)
    assert torch.equal(pending.cpu(), want)


def test_a_repeated_graph_draws_new_numbers_without_a_new_plan(device: str):
    def step() -> torch.Tensor:
        return torch.nn.functional.dropout(torch.ones(64, device=device), 0.5).cpu()

    torch.manual_seed(0)
    masks = [step() for _ in range(3)]
    more, counts = under_test.counted(lambda: [step() for _ in range(5)], "graphs_planned")
    masks += more
    assert counts["graphs_planned"] == 0
    assert len({tuple(mask.tolist()) for mask in masks}) == len(masks)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_same_mask(reentrant: bool, device: str):
    x = torch.ones(500, device=device, requires_grad=True)
    seen: list[torch.Tensor] = []

    def block(t: torch.Tensor) -> torch.Tensor:
        out = torch.nn.functional.dropout(t * 2, 0.5)
        seen.append(out.detach())
        return out

    torch.manual_seed(3)
    y = checkpoint(block, x, use_reentrant=reentrant)
    torch.randn(7, device=device)
    after = state()
    y.sum().backward()
    if reentrant:  # the other kind stops in the middle of the block, once it has what backward needs
        assert len(seen) == 2
        assert torch.equal(seen[0], seen[1])
    assert torch.equal(x.grad, y.detach())
    assert state() == after


def test_attention_dropout_is_the_devices_and_repeatable(device: str):
    q, k, v = (torch.randn(2, 4, 16, 8, device=device, requires_grad=True) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention

    def run() -> tuple[torch.Tensor, torch.Tensor]:
        out = attend(q, k, v, dropout_p=0.5)
        (grad,) = torch.autograd.grad(out.square().sum(), q)
        return out.detach().cpu(), grad.cpu()

    torch.manual_seed(0)
    host = torch.get_rng_state()
    first, second = run(), run()
    torch.manual_seed(0)
    again = run()
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], second[0])
    assert torch.equal(torch.get_rng_state(), host)
    assert drawn(lambda: attend(q, k, v, dropout_p=0.5)) == 2 * 4 * 16 * 16 / 4


# ---------------------------------------------------------------- errors, in PyTorch's words

BAD: list[tuple[str, Fill, Fill]] = [
    ("normal_", lambda t: t.normal_(0, 1), lambda t: t.normal_(0, -1)),
    ("normal_ nan", lambda t: t.normal_(0, 1), lambda t: t.normal_(0, math.nan)),
    ("uniform_", lambda t: t.uniform_(0, 1), lambda t: t.uniform_(2, 1)),
    ("uniform_ bounds", lambda t: t.uniform_(0, 1), lambda t: t.uniform_(0, 1e300)),
    ("uniform_ width", lambda t: t.uniform_(0, 1), lambda t: t.uniform_(-3e38, 3e38)),
    ("bernoulli_", lambda t: t.bernoulli_(0.5), lambda t: t.bernoulli_(1.5)),
    ("exponential_", lambda t: t.exponential_(1), lambda t: t.exponential_(0)),
    ("cauchy_", lambda t: t.cauchy_(0, 1), lambda t: t.cauchy_(0, 0)),
    ("log_normal_", lambda t: t.log_normal_(0, 1), lambda t: t.log_normal_(0, 0)),
    ("geometric_", lambda t: t.geometric_(0.5), lambda t: t.geometric_(1)),
    ("random_", lambda t: t.random_(0, 5), lambda t: t.random_(5, 5)),
    ("random_ bounds", lambda t: t.random_(0, 5), lambda t: t.to(torch.int8).random_(0, 500)),
    ("dropout", lambda t: torch.native_dropout(t, 0.5, True)[0], lambda t: torch.native_dropout(t, 1.5, True)[0]),
    ("normal", lambda t: torch.normal(t, 1.0), lambda t: torch.normal(t, -1.0)),
    ("integers", lambda t: t.uniform_(), lambda t: t.long().uniform_()),
    ("bool", lambda t: t.normal_(), lambda t: t.bool().normal_()),
    ("cauchy of integers", lambda t: t.cauchy_(), lambda t: t.int().cauchy_()),
    ("exponential of integers", lambda t: t.exponential_(), lambda t: t.int().exponential_()),
    ("complex", lambda t: t.bernoulli_(), lambda t: t.to(torch.complex64).bernoulli_()),
    ("expanded", lambda t: t.normal_(), lambda t: t[:1].expand(8).normal_()),
    ("expanded bernoulli", lambda t: t.bernoulli_(t), lambda t: t[:1].expand(8).bernoulli_(t)),
    (
        "dropout of integers",
        lambda t: torch.native_dropout(t, 0.5, True)[0],
        lambda t: torch.native_dropout(t.int(), 0.5, True)[0],
    ),
]


@pytest.mark.parametrize("used_before", [False, True], ids=["first use", "later use"])
@pytest.mark.parametrize(("good", "bad"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_errors_are_raised_at_the_call_in_pytorchs_words(good: Fill, bad: Fill, used_before: bool, device: str):
    with pytest.raises(Exception) as want:
        bad(torch.rand(8))
    x = torch.rand(8, device=device)
    if used_before:
        good(x.clone())
    with pytest.raises(type(want.value)) as got:
        bad(x)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]
    good(x)  # the device goes on
    assert torch.isfinite(x.cpu()).all()


@pytest.mark.parametrize(("good", "bad"), [row[1:] for row in BAD[:10]], ids=[row[0] for row in BAD[:10]])
def test_a_refused_call_draws_nothing(good: Fill, bad: Fill, device: str):
    x = torch.rand(8, device=device)
    good(x.clone())

    def refused() -> None:
        with pytest.raises(RuntimeError):
            bad(x)

    assert drawn(refused) == 0


# ---------------------------------------------------------------- ops that run PyTorch's kernel

LIBRARY: list[tuple[str, Fill]] = [
    ("multinomial", lambda t: torch.multinomial(t, 20)),
    ("multinomial with replacement", lambda t: torch.multinomial(t, 20, replacement=True)),
    ("multinomial of rows", lambda t: torch.multinomial(t.view(4, 50), 20)),
    ("multinomial out", lambda t: torch.multinomial(t, 20, out=torch.empty(0, dtype=torch.int64, device=t.device))),
    ("randperm", lambda t: torch.randperm(200, device=t.device)),
    ("poisson", lambda t: torch.poisson(t * 20)),
    ("binomial", lambda t: torch.binomial(torch.full_like(t, 30), t)),
    ("gamma", lambda t: torch._standard_gamma(t + 0.5)),
    ("dirichlet", lambda t: torch._sample_dirichlet(t.view(4, 50) + 0.5)),
    ("rrelu", lambda t: torch.rrelu(t - 0.5, training=True)),
    ("rrelu_", lambda t: torch.rrelu_(t - 0.5, training=True)),
]


@pytest.mark.parametrize("sample", [row[1] for row in LIBRARY], ids=[row[0] for row in LIBRARY])
def test_library_ops_are_repeatable_and_differ_between_calls(sample: Fill, device: str):
    x = torch.rand(200, device=device) * 0.9 + 0.05
    host = torch.get_rng_state()
    torch.sinter.manual_seed(5)
    first, second = sample(x.clone()), sample(x.clone())
    torch.sinter.manual_seed(5)
    again = sample(x.clone())
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), second.cpu())
    assert torch.equal(torch.get_rng_state(), host), "drew from the CPU's generator"
    want = sample(x.cpu())
    assert (first.shape, first.dtype, first.stride()) == (want.shape, want.dtype, want.stride())


def test_library_ops_take_a_generator(device: str):
    own = torch.Generator(device).manual_seed(1)
    a = torch.randperm(50, device=device, generator=own)
    own.manual_seed(1)
    assert torch.equal(torch.randperm(50, device=device, generator=own), a)
    assert a.cpu().sort().values.tolist() == list(range(50))
    p = torch.rand(9, device=device)
    own.manual_seed(1)
    b = torch.multinomial(p, 3, generator=own)
    own.manual_seed(1)
    assert torch.equal(torch.multinomial(p, 3, generator=own), b)


def test_multinomial_is_recorded_and_checks_contents_when_it_runs(device: str):
    p = torch.rand(4, 10, device=device)
    torch.multinomial(p, 2).cpu()
    under_test.sync()
    result, counts = under_test.counted(lambda: torch.multinomial(p, 2), "syncs", "fallbacks")
    assert counts == {"syncs": 0, "fallbacks": 0}
    assert result.cpu().max() < 10
    for bad, words in (
        (torch.full((10,), -1.0), "probability tensor contains either"),
        (torch.zeros(10), "invalid multinomial distribution"),
    ):
        with pytest.raises(RuntimeError, match=words):
            torch.multinomial(bad.to(device), 2).cpu()
    with pytest.raises(RuntimeError, match="without replacement"):
        torch.multinomial(p, 11)


# ---------------------------------------------------------------- nothing is forgotten


def _samplers() -> list[str]:
    """Ops whose tag says that they draw and that have a kernel for strided tensors on the CPU."""
    names = []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith("aten::"):
            continue
        base, _, overload = name.removeprefix("aten::").partition(".")
        try:
            op = getattr(getattr(torch.ops.aten, base), overload or "default")
        except (AttributeError, RuntimeError):
            continue
        if torch.Tag.nondeterministic_seeded in op.tags and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU"):
            names.append(name)
    return names


def test_every_op_that_draws_on_the_cpu_draws_from_the_device(device: str):
    """The op table has a row for each; the two of attention draw nothing on the CPU."""
    rows = {
        "uniform_", "normal_", "bernoulli_", "bernoulli", "random_", "exponential_", "cauchy_", "log_normal_",
        "geometric_", "native_dropout", "normal", "randperm", "multinomial", "poisson", "binomial", "_standard_gamma",
        "_sample_dirichlet", "rrelu_with_noise", "rrelu_with_noise_",
    }  # fmt: skip
    attention = {"_fused_sdp_choice", "_scaled_dot_product_flash_attention_for_cpu"}
    found = {name.removeprefix("aten::").partition(".")[0] for name in _samplers()}
    assert found - attention == rows


FACTORIES: list[tuple[str, Callable[[str], torch.Tensor]]] = [
    ("rand", lambda d: torch.rand(50, device=d)),
    ("randn", lambda d: torch.randn(50, device=d)),
    ("randint", lambda d: torch.randint(1000, (50,), device=d)),
    ("randint low", lambda d: torch.randint(5, 1000, (50,), device=d, dtype=torch.int32)),
    ("rand_like", lambda d: torch.rand_like(torch.empty(50, device=d))),
    ("randn_like", lambda d: torch.randn_like(torch.empty(50, device=d))),
    ("randint_like", lambda d: torch.randint_like(torch.empty(50, device=d), 1000)),
    ("normal", lambda d: torch.normal(0.0, 1.0, (50,), device=d)),
    ("rand out", lambda d: torch.rand(50, out=torch.empty(50, device=d))),
    ("randn out", lambda d: torch.randn(50, out=torch.empty(50, device=d))),
    ("randint out", lambda d: torch.randint(1000, (50,), out=torch.empty(50, device=d))),
    ("normal out", lambda d: torch.normal(0.0, 1.0, (50,), out=torch.empty(50, device=d))),
    ("uniform", lambda d: torch.ops.aten.uniform(torch.empty(50, device=d))),
    ("bernoulli.p", lambda d: torch.bernoulli(torch.empty(50, device=d), 0.5)),
    (
        "bernoulli.Tensor",
        lambda d: torch.ops.aten.bernoulli.Tensor(torch.empty(50, device=d), torch.full((50,), 0.5, device=d)),
    ),
    ("exponential", lambda d: torch.ops.aten.exponential(torch.empty(50, device=d))),
    ("random", lambda d: torch.ops.aten.random(torch.empty(50, device=d))),
    (
        "rrelu functional",
        lambda d: torch.ops.aten.rrelu_with_noise_functional(
            -torch.ones(50, device=d), torch.zeros(50, device=d), 0.1, 0.3, True
        )[0],
    ),
    ("gumbel", lambda d: torch.nn.functional.gumbel_softmax(torch.zeros(50, device=d))),
]


@pytest.mark.parametrize("make", [row[1] for row in FACTORIES], ids=[row[0] for row in FACTORIES])
def test_factories_and_composites_draw_from_the_device(make: Callable[[str], torch.Tensor], device: str):
    host = torch.get_rng_state()
    torch.sinter.manual_seed(8)
    first, second = make(device), make(device)
    torch.sinter.manual_seed(8)
    again = make(device)
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), second.cpu())
    assert torch.equal(torch.get_rng_state(), host), "drew from the CPU's generator"


def test_large_results_do_not_depend_on_the_number_of_threads(device: str):
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            torch.sinter.manual_seed(0)
            results.append(torch.randn(123_457, device=device).cpu())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_kernels_run_on_pytorchs_thread_pool():
    """parallel_for is a template: in a file compiled without OpenMP it runs on one thread and says nothing."""
    library = under_test.ROOT / "python" / "torch_sinter" / "lib" / "libtorch_sinter.so"
    assert b"GOMP_parallel" in library.read_bytes()
