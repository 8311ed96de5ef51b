"""Device guards and device arguments."""

from __future__ import annotations

import pytest
import torch


def test_a_device_context_makes_factories_use_it(device: str) -> None:
    with torch.device(device):
        made = [torch.ones(2), torch.arange(3), torch.tensor([1.0]), torch.nn.Linear(2, 2).weight, torch.empty(0)]
    assert {tensor.device.type for tensor in made} == {device}
    assert torch.ones(1).device.type == "cpu"


def test_tensors_of_two_devices_do_not_mix(device: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)expected all tensors to be on the same device"):
        torch.ones(2, device=device) + torch.ones(2)
    with pytest.raises(RuntimeError, match=r"(?i)same device"):
        torch.nn.functional.linear(torch.ones(1, 2), torch.ones(2, 2, device=device))


def test_a_zero_dim_cpu_tensor_may_stand_beside_ours(device: str) -> None:
    x = torch.arange(3.0, device=device)
    assert (x * torch.tensor(2.0)).cpu().tolist() == [0.0, 2.0, 4.0]
    assert (torch.tensor(2.0) * x).device.type == device
    x.mul_(torch.tensor(3))
    assert x.tolist() == [0.0, 3.0, 6.0]


def test_the_other_way_round_is_refused(device: str) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3) + torch.ones(3, device=device)


def test_to_keeps_what_is_there(device: str) -> None:
    x = torch.ones(2, device=device)
    assert x.to(device) is x and x.to(torch.device(device, 0)) is x
    assert x.to(device, copy=True) is not x
    assert x.to(device, torch.float64).dtype == torch.float64
    assert x.cpu().device.type == "cpu"
