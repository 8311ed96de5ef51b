"""Random numbers: governed by torch.manual_seed, known on the host, the same however they are computed."""

from __future__ import annotations

import pytest
import torch

from support import device as under_test

DRAWS = {
    "rand": lambda d, g=None: torch.rand(50, device=d, generator=g),
    "randn": lambda d, g=None: torch.randn(51, device=d, generator=g),
    "randint": lambda d, g=None: torch.randint(0, 1000, (50,), device=d, generator=g),
    "randperm": lambda d, g=None: torch.randperm(50, device=d, generator=g),
    "bernoulli": lambda d, g=None: torch.full((64,), 0.5, device=d).bernoulli(generator=g),
    "multinomial": lambda d, g=None: torch.multinomial(torch.ones(20, device=d), 10, generator=g),
    "normal_": lambda d, g=None: torch.empty(50, device=d, dtype=torch.float64).normal_(generator=g),
    "exponential_": lambda d, g=None: torch.empty(50, device=d).exponential_(generator=g),
    "uniform_ bf16": lambda d, g=None: torch.empty(50, device=d, dtype=torch.bfloat16).uniform_(generator=g),
    "rand_like": lambda d, g=None: torch.rand_like(torch.empty(50, device=d)),
    "dropout": lambda d, g=None: torch.nn.functional.dropout(torch.ones(64, device=d)),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_the_seed_decides(draw: str, device: str) -> None:
    torch.manual_seed(5)
    first, second = DRAWS[draw](device).cpu(), DRAWS[draw](device).cpu()
    torch.manual_seed(5)
    assert torch.equal(DRAWS[draw](device).cpu(), first)
    assert not torch.equal(first, second)
    torch.manual_seed(6)
    assert not torch.equal(DRAWS[draw](device).cpu(), first)


@pytest.mark.parametrize("draw", [name for name in DRAWS if name not in ("rand_like", "dropout")])
def test_generators_are_apart_from_the_default_one(draw: str, device: str) -> None:
    generator = torch.Generator(device).manual_seed(9)
    torch.manual_seed(0)
    state = torch.sinter.get_rng_state()
    first = DRAWS[draw](device, generator).cpu()
    assert torch.equal(torch.sinter.get_rng_state(), state)
    DRAWS[draw](device)
    generator.manual_seed(9)
    assert torch.equal(DRAWS[draw](device, generator).cpu(), first)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_state_brings_the_numbers_back(draw: str, device: str) -> None:
    torch.manual_seed(1)
    DRAWS[draw](device)
    state = torch.sinter.get_rng_state()
    first = DRAWS[draw](device).cpu()
    torch.sinter.set_rng_state(state)
    assert torch.equal(DRAWS[draw](device).cpu(), first)


def test_the_state_is_seed_and_offset_and_reading_it_waits_for_nothing(device: str) -> None:
    torch.manual_seed(123)
    state = torch.sinter.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8 and state.numel() == 16
    assert state.view(torch.int64).tolist() == [123, 0]
    (after, syncs) = under_test.counted(
        lambda: (torch.rand(10, device=device), torch.sinter.get_rng_state())[1], "syncs", "graphs_ended"
    )
    assert after.view(torch.int64)[0] == 123 and after.view(torch.int64)[1] > 0
    assert syncs == {"syncs": 0, "graphs_ended": 0}


def test_cpu_numbers_are_left_alone(device: str) -> None:
    torch.manual_seed(3)
    want = torch.rand(4)
    torch.manual_seed(3)
    torch.rand(100, device=device)
    assert torch.equal(torch.rand(4), want)


def test_fork_rng_covers_the_device(device: str) -> None:
    torch.manual_seed(2)
    before = torch.sinter.get_rng_state()
    with torch.random.fork_rng(device_type=device):
        torch.rand(5, device=device)
        assert not torch.equal(torch.sinter.get_rng_state(), before)
    assert torch.equal(torch.sinter.get_rng_state(), before)


def test_module_functions() -> None:
    torch.sinter.manual_seed(77)
    assert torch.sinter.initial_seed() == 77 == torch.sinter.default_generators[0].initial_seed()
    states = torch.sinter.get_rng_state_all()
    new = torch.sinter.seed()
    assert torch.sinter.initial_seed() == new != 77
    torch.sinter.set_rng_state_all(states)
    assert torch.sinter.initial_seed() == 77
    assert len(torch.sinter.default_generators) == 1


def test_a_generator_of_the_wrong_device_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device=device, generator=torch.Generator("cpu"))


def test_numbers_are_spread_as_they_should_be(device: str) -> None:
    torch.manual_seed(0)
    uniform, normal = torch.rand(100_000, device=device).cpu(), torch.randn(100_000, device=device).cpu()
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 5e-3
    assert abs(normal.mean()) < 2e-2 and abs(normal.std() - 1) < 2e-2
    kept = torch.nn.functional.dropout(torch.ones(100_000, device=device), 0.3).count_nonzero().item()
    assert abs(kept - 70_000) < 700
