"""Printing reads a tensor once and says where it lives."""

from __future__ import annotations

import pytest
import torch

from support import device as under_test

TENSORS = {
    "floats": lambda d: torch.linspace(0, 1, 24, device=d).reshape(4, 6),
    "ints": lambda d: torch.arange(12, device=d),
    "bools": lambda d: torch.tensor([True, False], device=d),
    "complex": lambda d: torch.tensor([1 + 2j, -1j], device=d),
    "bf16": lambda d: torch.tensor([1.5, float("nan"), float("inf")], device=d, dtype=torch.bfloat16),
    "scalar": lambda d: torch.tensor(3.25, device=d),
    "empty": lambda d: torch.empty(0, 3, device=d),
    "large": lambda d: torch.arange(3000, device=d).reshape(3, 1000),
    "transposed": lambda d: torch.arange(6.0, device=d).reshape(2, 3).T,
    "parameter": lambda d: torch.nn.Parameter(torch.ones(2, device=d)),
    "non-leaf": lambda d: torch.ones(2, device=d, requires_grad=True) * 2,
}


@pytest.mark.parametrize("name", TENSORS)
def test_text_is_the_cpus_with_the_device_named(name: str, device: str) -> None:
    text = repr(TENSORS[name](device))
    assert f"device='{device}:0'" in text
    assert text.replace(f", device='{device}:0'", "").split() == repr(TENSORS[name]("cpu")).split()


@pytest.mark.parametrize("name", ["floats", "large", "complex", "bools"])
def test_it_syncs_once(name: str, device: str) -> None:
    tensor = TENSORS[name](device) * 1
    _, counts = under_test.counted(lambda: str(tensor), "syncs", "graphs_ended")
    assert counts["syncs"] == 1 and counts["graphs_ended"] <= 1


def test_formatting_a_scalar(device: str) -> None:
    x = torch.tensor(2.0, device=device) / 3
    assert f"{x:.3f} {x.item():.3f}" == "0.667 0.667"


def test_modules_and_state_dicts_print(device: str) -> None:
    model = torch.nn.Linear(2, 2).to(device)
    assert repr(model) == repr(torch.nn.Linear(2, 2))
    assert str(model.state_dict()).count(f"{device}:0") == 2
