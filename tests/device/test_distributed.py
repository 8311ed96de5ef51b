"""torch.distributed in two processes: on the device every check gives what it gives on the CPU, to the bit."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

from support import device as under_test

pytestmark = pytest.mark.lazy

SCRIPT = under_test.ROOT / "tests" / "support" / "two_processes.py"


def checks() -> list[str]:
    """Read from the file: it sets up processes when imported there, not here."""
    tree = ast.parse(SCRIPT.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [f.name for f in functions if any(getattr(d, "id", "") == "check" for d in f.decorator_list)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, str]], Any]:
    folder = tmp_path_factory.mktemp("two processes")
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, timeout=600)
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("[01].json"))]
    assert len(results) == 2, done.stderr[-3000:]
    return results, done


EXACT = {"fsdp2_mixed_precision", "ddp_with_autocast_and_batch_norm"}  # bf16 products beside 32-bit losses


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.exact) if n in EXACT else n for n in checks()])
def test_check(name: str, outcomes):
    results, done = outcomes
    for rank, result in enumerate(results):
        assert name in result, f"rank {rank} did not get there: {done.stderr[-3000:]}"
        assert not result[name], f"rank {rank}: {result[name]}"


def test_there_are_checks():
    assert len(checks()) > 30


def test_the_processes_end_well_and_say_nothing(outcomes):
    _, done = outcomes
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Overriding a previously registered kernel" not in done.stderr
    assert "Time stats are currently only collected" not in done.stderr
