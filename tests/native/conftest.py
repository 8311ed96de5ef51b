"""Tests of generated kernels."""

from __future__ import annotations

import pytest

from support import device as under_test


@pytest.fixture(autouse=True, scope="session")
def _on_the_native_engine() -> None:
    assert under_test.flag("ENGINE") == "native", "SINTER_ENGINE keeps these from the engine they test"
