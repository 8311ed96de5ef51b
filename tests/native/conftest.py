"""Tests of generated kernels: the engine is chosen once for a process, so these run in one of their own (make test-native)."""

from __future__ import annotations

import pytest

from support import device as under_test


@pytest.fixture(autouse=True, scope="session")
def _on_the_native_engine() -> None:
    assert under_test.flag("ENGINE") == "native", "run these with SINTER_ENGINE=native, as `make test-native` does"
