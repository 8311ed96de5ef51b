"""Random numbers: a counter-based generator whose numbers depend on seed, offset and place in the result, on nothing else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from support import device as under_test
from support.device import counted

pytestmark = pytest.mark.lazy
D = under_test.NAME


def rand(*size: int, **options) -> torch.Tensor:
    return torch.rand(*size, device=D, **options)


def offset() -> int:
    return int(torch.sinter.get_rng_state()[8:].view(torch.int64)[0])


DRAWS = {
    "rand": lambda: rand(100),
    "randn": lambda: torch.randn(100, device=D),
    "randint": lambda: torch.randint(0, 1000, (100,), device=D),
    "bernoulli": lambda: torch.bernoulli(torch.full((100,), 0.5, device=D)),
    "dropout": lambda: F.dropout(torch.ones(100, device=D), 0.5),
    "normal_": lambda: torch.empty(100, device=D).normal_(),
    "uniform_": lambda: torch.empty(100, device=D).uniform_(-1, 1),
    "exponential_": lambda: torch.empty(100, device=D).exponential_(),
    "geometric_": lambda: torch.empty(100, device=D).geometric_(0.3),
    "cauchy_": lambda: torch.empty(100, device=D).cauchy_(),
    "log_normal_": lambda: torch.empty(100, device=D).log_normal_(),
    "random_": lambda: torch.empty(100, dtype=torch.int64, device=D).random_(),
    "randperm": lambda: torch.randperm(100, device=D),
    "multinomial": lambda: torch.multinomial(torch.ones(100, device=D), 50),
    "poisson": lambda: torch.poisson(torch.full((100,), 3.0, device=D)),
    "rrelu": lambda: F.rrelu(-torch.ones(100, device=D), training=True),
    "gumbel": lambda: F.gumbel_softmax(torch.zeros(100, device=D)),
    "alpha dropout": lambda: F.alpha_dropout(torch.ones(100, device=D), 0.5, training=True),
    "double": lambda: rand(100, dtype=torch.float64),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_seed_repeats_and_numbers_move_on(draw) -> None:
    torch.manual_seed(5)
    first, second = draw(), draw()
    torch.manual_seed(5)
    again = draw()
    torch.manual_seed(6)
    other = draw()
    assert torch.equal(first.cpu(), again.cpu())
    assert not torch.equal(first.cpu(), second.cpu())
    assert not torch.equal(first.cpu(), other.cpu())


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_numbers_do_not_depend_on_graph_ends_or_threads(draw) -> None:
    torch.manual_seed(5)
    together = [draw() for _ in range(3)]
    torch.manual_seed(5)
    apart, threads = [], torch.get_num_threads()
    for count in (1, 2, threads):
        torch.set_num_threads(count)
        apart.append(draw())
        under_test.sync()
    for a, b in zip(together, apart, strict=True):
        assert torch.equal(a.cpu(), b.cpu())


def test_a_number_depends_on_its_place_only() -> None:
    """Counter = offset + i/4, lane i%4, with i the row-major index of the result."""

    def after_seed(draw):
        torch.manual_seed(11)
        return draw().cpu()

    long = after_seed(lambda: rand(64))
    assert torch.equal(after_seed(lambda: rand(7)), long[:7])
    assert torch.equal(after_seed(lambda: rand(8, 8)).flatten(), long)
    strided = after_seed(lambda: torch.empty(8, 8, device=D).t().uniform_())
    assert torch.equal(strided.flatten(), long)
    holes = after_seed(lambda: torch.empty(64, 2, device=D)[:, 1].uniform_())
    assert torch.equal(holes, long)


def philox(counter: int, seed: int) -> list[int]:
    """Philox 4x32-10 as its paper gives it: four lanes of a 64-bit counter under a 64-bit key."""
    word = 0xFFFFFFFF
    c, k = [counter & word, counter >> 32, 0, 0], [seed & word, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & word, (a >> 32) ^ c[3] ^ k[1], a & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


def test_the_generator_is_philox() -> None:
    """The key is the seed; element i is lane i%4 of counter offset + i/4, and of two lanes for 64-bit draws."""
    seed, used = 0x123456789ABCDEF, 0

    def single(i: int) -> float:
        return (philox(used + i // 4, seed)[i % 4] >> 8) * 2.0**-24

    def double(i: int) -> float:
        low, high = philox(used + i // 2, seed)[2 * (i % 2) :][:2]
        return ((high << 32 | low) >> 11) * 2.0**-53

    torch.manual_seed(seed)
    for size, dtype, element, counters in (
        (5, torch.float32, single, 2),
        (9, torch.float32, single, 3),
        (3, torch.float64, double, 2),
        (4, torch.float32, single, 1),
    ):
        assert rand(size, dtype=dtype).tolist() == [element(i) for i in range(size)]
        used += counters


def test_ranges_are_reserved_by_fours() -> None:
    torch.manual_seed(1)
    start = offset()
    counts = []
    for n in (1, 4, 5, 64, 0):
        before = offset()
        rand(n)
        counts.append(offset() - before)
    unit = counts[0]
    assert unit > 0
    assert counts == [unit, unit, 2 * unit, 16 * unit, 0]
    before = offset()
    rand(5, dtype=torch.float64)
    assert offset() - before == 4 * unit
    assert start == 0


def test_ranges_do_not_overlap() -> None:
    torch.manual_seed(1)
    drawn = torch.cat([rand(1000) for _ in range(20)]).cpu()
    assert len(drawn.unique()) > 19_900


def test_state_is_exact_without_waiting() -> None:
    torch.manual_seed(3)
    x = torch.ones(8, device=D)
    under_test.sync()

    def course():
        F.dropout(x, 0.5)
        return torch.sinter.get_rng_state()

    state, rose = counted(course, "graphs_ended", "syncs")
    assert rose == {"graphs_ended": 0, "syncs": 0}
    first = rand(10)
    torch.sinter.set_rng_state(state)
    assert torch.equal(rand(10).cpu(), first.cpu())


def test_seeding_does_not_reach_what_is_recorded() -> None:
    torch.manual_seed(1)
    pending = rand(10)
    torch.manual_seed(2)
    torch.manual_seed(1)
    assert torch.equal(rand(10).cpu(), pending.cpu())


def test_own_generators() -> None:
    one, two = torch.Generator(D).manual_seed(9), torch.Generator(D).manual_seed(9)
    a, b = rand(10, generator=one), rand(10, generator=two)
    assert torch.equal(a.cpu(), b.cpu())
    assert not torch.equal(rand(10, generator=one).cpu(), a.cpu())
    state = one.get_state()
    c = rand(10, generator=one)
    one.set_state(state)
    assert torch.equal(rand(10, generator=one).cpu(), c.cpu())
    before = torch.sinter.get_rng_state()
    rand(10, generator=one)
    assert torch.equal(torch.sinter.get_rng_state(), before)


def test_fork_rng() -> None:
    torch.manual_seed(4)
    with torch.random.fork_rng(device_type=D):
        inside = rand(5)
    assert torch.equal(rand(5).cpu(), inside.cpu())


def test_a_random_step_is_one_graph() -> None:
    x = torch.ones(16, 16).to(D)

    def step() -> float:
        return F.dropout(x @ rand(16, 16), 0.3).mean().item()

    step()
    seen, rose = counted(lambda: [step() for _ in range(8)], "graphs_planned")
    assert rose["graphs_planned"] == 0
    assert len(set(seen)) == 8


def test_seeds_and_offsets_make_no_new_graph() -> None:
    def step(seed: int) -> float:
        torch.manual_seed(seed)
        rand(4 * seed)  # so that the next one starts elsewhere
        under_test.sync()
        return rand(16).sum().item()

    for seed in range(1, 7):  # their first numbers are of other sizes, which are other graphs
        step(seed)
    under_test.sync()
    seen, rose = counted(lambda: [step(seed) for seed in range(6, 0, -1)], "graphs_planned")
    assert rose["graphs_planned"] == 0
    assert len(set(seen)) == 6


@pytest.mark.parametrize("reentrant", (False, True))
def test_checkpoint_draws_the_same_mask(reentrant: bool) -> None:
    x = torch.ones(64, 64, device=D, requires_grad=True)
    torch.manual_seed(1)
    y = checkpoint(lambda t: F.dropout(t, 0.5), x, use_reentrant=reentrant)
    F.dropout(x, 0.5)  # moves the generator on between forward and backward
    y.sum().backward()
    assert torch.equal((y.detach() != 0).cpu(), (x.grad != 0).cpu())
    assert 0.4 < (y != 0).float().mean().item() < 0.6


MOMENTS = {
    "rand": (lambda n: rand(n), 0.5, 1 / 12**0.5),
    "randn": (lambda n: torch.randn(n, device=D), 0, 1),
    "normal": (lambda n: torch.empty(n, device=D).normal_(3, 2), 3, 2),
    "uniform": (lambda n: torch.empty(n, device=D).uniform_(-1, 3), 1, 4 / 12**0.5),
    "exponential": (lambda n: torch.empty(n, device=D).exponential_(2), 0.5, 0.5),
    "bernoulli": (lambda n: torch.bernoulli(torch.full((n,), 0.3, device=D)), 0.3, 0.21**0.5),
    "bernoulli p": (lambda n: torch.empty(n, device=D).bernoulli_(0.8), 0.8, 0.16**0.5),
    "dropout": (lambda n: F.dropout(torch.ones(n, device=D), 0.25), 1, (1 / 3) ** 0.5),
    "randint": (lambda n: torch.randint(0, 10, (n,), device=D).float(), 4.5, 8.25**0.5),
    "geometric": (lambda n: torch.empty(n, device=D).geometric_(0.25), 4, 12**0.5),
    "log normal": (lambda n: torch.empty(n, device=D).log_normal_(0, 0.25), 1.0317, 0.2620),
    "poisson": (lambda n: torch.poisson(torch.full((n,), 5.0, device=D)), 5, 5**0.5),
    "half": (lambda n: rand(n, dtype=torch.bfloat16).float(), 0.5, 1 / 12**0.5),
    "double": (lambda n: torch.randn(n, dtype=torch.float64, device=D), 0, 1),
    "multinomial": (
        lambda n: torch.multinomial(torch.tensor([0.1, 0.9], device=D), n, replacement=True).float(),
        0.9,
        0.3,
    ),
}


@pytest.mark.parametrize("draw, mean, deviation", MOMENTS.values(), ids=MOMENTS)
def test_distributions(draw, mean: float, deviation: float) -> None:
    torch.manual_seed(0)
    n = 200_000
    x = draw(n).cpu().double()
    assert abs(x.mean().item() - mean) < 6 * deviation / n**0.5
    assert abs(x.std().item() - deviation) < 0.02 * deviation + 0.002


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
def test_uniform_stays_in_its_range(dtype: torch.dtype) -> None:
    x = rand(100_000, dtype=dtype).cpu()
    assert x.min() >= 0
    assert x.max() < 1
    y = torch.empty(100_000, dtype=dtype, device=D).uniform_(2, 3).cpu()
    assert y.min() >= 2
    assert y.max() <= 3


def test_normal_numbers_are_normal() -> None:
    """Kolmogorov-Smirnov against the normal distribution."""
    x = torch.randn(100_000, device=D).cpu().double().sort()[0]
    expected = 0.5 * (1 + torch.erf(x / 2**0.5))
    distance = (expected - torch.arange(1, 100_001) / 100_000).abs().max().item()
    assert distance < 1.95 / 100_000**0.5 * 1.2


def test_randperm_is_a_permutation() -> None:
    assert torch.equal(torch.randperm(1000, device=D).sort()[0].cpu(), torch.arange(1000))
