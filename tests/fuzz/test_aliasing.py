"""Random programs must do on the device what they do on the CPU.

One is replayed by `python tests/fuzz/aliasing.py --seed N --print`.
"""

from __future__ import annotations

import pytest

from fuzz.aliasing import build
from fuzz.program import disagreement, shrink

PROGRAMS_A_TEST = 250


def check(first: int, length: int = 40) -> None:
    for seed in range(first, first + PROGRAMS_A_TEST):
        program = build(seed, length)
        if disagreement(program):
            program = shrink(program)
            lines = "\n    ".join(program)
            pytest.fail(
                f"seed {seed} (length {length}) differs: {'; '.join(disagreement(program))}\n    {lines}", pytrace=False
            )


@pytest.mark.parametrize("first", range(0, 5000, PROGRAMS_A_TEST))
def test_programs(first: int) -> None:
    check(first)


@pytest.mark.parametrize("first", (100_000, 100_250))
def test_long_programs(first: int) -> None:
    check(first, length=150)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000_000, 1_050_000, PROGRAMS_A_TEST))
def test_many_more(first: int) -> None:
    check(first)
