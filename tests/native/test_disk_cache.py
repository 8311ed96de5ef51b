"""Kernels on disk: a second process compiles nothing; damage is a miss; the command shows, verifies and clears."""

from __future__ import annotations

import pathlib

import pytest

from support import process

WORK = """
import torch
for f in (lambda x: (x + 1) * 2, lambda x: torch.tanh(x) - x):
    f(torch.arange(5.0).to(D)).cpu()
counters = under_test.metrics()["counters"]
print(counters.get("kernels_compiled", 0), counters.get("kernels_from_disk", 0))
"""


def work(cache: pathlib.Path) -> str:
    return process.output(WORK, SINTER_ENGINE="native", SINTER_CACHE_DIR=str(cache)).strip()


def command(cache: pathlib.Path, action: str) -> str:
    script = f"""
from torch_sinter.cli.main import main
print(main(["cache", {action!r}]))
"""
    return process.output(script, SINTER_CACHE_DIR=str(cache))


def test_a_second_process_compiles_nothing(tmp_path: pathlib.Path) -> None:
    assert work(tmp_path) == "2 0"
    assert work(tmp_path) == "0 2"
    assert "2 intact, 0 damaged" in command(tmp_path, "verify")


def test_damage_is_noticed_and_repaired(tmp_path: pathlib.Path) -> None:
    work(tmp_path)
    damaged = sorted((tmp_path / "kernels").glob("*.kernel"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-3] + b"???")
    assert command(tmp_path, "verify").splitlines()[-2:] == ["1 intact, 1 damaged", "1"]
    assert work(tmp_path) == "1 1"
    assert "2 intact, 0 damaged" in command(tmp_path, "verify")
    assert "removed 2 kernels" in command(tmp_path, "clear")
    assert work(tmp_path) == "2 0"


@pytest.mark.parametrize("mode", (0o777, 0o770))
def test_a_folder_that_others_can_write_is_not_used(tmp_path: pathlib.Path, mode: int) -> None:
    work(tmp_path)
    (tmp_path / "kernels").chmod(mode)
    assert work(tmp_path) == "2 0"
