"""torch.set_default_device."""

from __future__ import annotations

import torch


def test_factories_and_modules_follow(device: str) -> None:
    torch.set_default_device(device)
    try:
        assert torch.get_default_device().type == device
        x = torch.randn(3, 2)
        model = torch.nn.LSTM(2, 4)
        out, _ = model(x[:, None])
        made = [x, out, torch.tensor([1.0]), torch.arange(4), torch.randperm(4), torch.linspace(0, 1, 3), torch.eye(2)]
        assert {tensor.device.type for tensor in made} == {device}
        out.sum().backward()
        assert torch.tensor([1.0], device="cpu").device.type == "cpu"
        assert torch.from_numpy(__import__("numpy").ones(2)).device.type == "cpu"
    finally:
        torch.set_default_device(None)
    assert torch.ones(1).device.type == "cpu"


def test_dataloader_under_a_default_device(device: str) -> None:
    torch.set_default_device(device)
    try:
        data = torch.utils.data.TensorDataset(torch.arange(4.0))
        shuffle = torch.Generator(device)
        batches = [batch for (batch,) in torch.utils.data.DataLoader(data, 2, shuffle=True, generator=shuffle)]
    finally:
        torch.set_default_device(None)
    assert sorted(torch.cat(batches).tolist()) == [0.0, 1.0, 2.0, 3.0]
