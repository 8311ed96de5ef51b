"""Every test runs on the lazy device; without it nothing here means anything, so say so at once."""

from __future__ import annotations

import pathlib
import sys
import warnings

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from support import device as under_test


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: long; left out unless asked for with -m slow, as `make conformance` does")
    config.addinivalue_line("markers", "lazy: needs the lazy device itself, not just any device")
    if not config.option.markexpr:
        config.option.markexpr = "not slow"


def pytest_sessionstart(session: pytest.Session) -> None:
    problem = under_test.load()
    if problem:
        pytest.exit(problem, returncode=4)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not under_test.IS_LAZY:
        skip = pytest.mark.skip(reason="SINTER_TEST_DEVICE is not the lazy device")
        for item in items:
            if item.get_closest_marker("lazy"):
                item.add_marker(skip)


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
