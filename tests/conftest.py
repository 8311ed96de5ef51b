"""Every test runs on the lazy device; without it nothing here means anything, so say so at once."""

from __future__ import annotations

import pathlib
import sys
import warnings

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from support import compare
from support import device as under_test


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: long; left out unless asked for with -m slow, as `make conformance` does")
    config.addinivalue_line("markers", "exact: compares bits, or kernels by name, with PyTorch's: for the reference engine")
    config.addinivalue_line("markers", "lazy: needs the lazy device itself, not just any device")
    if not config.option.markexpr:
        config.option.markexpr = "not slow"


def pytest_sessionstart(session: pytest.Session) -> None:
    problem = under_test.load()
    if problem:
        pytest.exit(problem, returncode=4)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if compare.runs_kernels_of_ours():
        skip = pytest.mark.skip(reason="the reference engine runs it: it compares bits, or kernels by name, with PyTorch's")
        for item in items:
            if item.get_closest_marker("exact"):
                item.add_marker(skip)
    if not under_test.IS_LAZY:
        skip = pytest.mark.skip(reason="SINTER_TEST_DEVICE is not the lazy device")
        for item in items:
            if item.get_closest_marker("lazy"):
                item.add_marker(skip)


@pytest.fixture(autouse=True, scope="session")
def _equality_is_the_engines():
    """torch.equal in the tests asks what the engine promises: bits, or the last bits where kernels of ours run."""
    if not compare.runs_kernels_of_ours():
        yield
        return
    exact = torch.equal

    def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
        if exact(a, b):
            return True
        if a.size() != b.size() or a.dtype != b.dtype or not (a.is_floating_point() or a.is_complex()):
            return False
        return compare.same_to_the_last_bits(a.detach().cpu(), b.detach().cpu())

    torch.equal = equal
    yield
    torch.equal = exact


@pytest.fixture
def device() -> str:
    return under_test.NAME


@pytest.fixture(autouse=True)
def _nothing_left_pending():
    """Each test starts and ends with an empty graph, so that a failure shows in the test that made it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    under_test.sync("end of test")
