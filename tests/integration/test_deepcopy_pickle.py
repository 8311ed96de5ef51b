"""copy and pickle."""

from __future__ import annotations

import copy
import pickle

import torch


def test_deepcopy_is_apart_and_on_the_device(device: str) -> None:
    x = torch.ones(3, device=device) + 1
    y = copy.deepcopy(x)
    x.zero_()
    assert y.device == x.device and y.tolist() == [2.0] * 3


def test_deepcopy_keeps_views_and_ties(device: str) -> None:
    base = torch.arange(6.0, device=device)
    copied, view = copy.deepcopy([base, base[2:4]])
    copied.zero_()
    assert view.tolist() == [0.0, 0.0] and base.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_deepcopy_of_a_module_in_training(device: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).to(device)
    model[0].register_parameter("tied", model[0].weight)
    model(torch.rand(4, 3, device=device)).sum().backward()
    copied = copy.deepcopy(model)
    assert copied[0].tied is copied[0].weight
    for (name, a), b in zip(model.named_parameters(), copied.parameters(), strict=True):
        assert b.device == a.device and torch.equal(a.cpu(), b.cpu()), name
    copied[0].weight.data.zero_()
    assert model[0].weight.count_nonzero() > 0


def test_shallow_copy_shares(device: str) -> None:
    x = torch.ones(2, device=device)
    y = copy.copy(x)
    y.add_(1)
    assert x.tolist() == [2.0, 2.0]


def test_pickled_modules_and_optimizers(device: str) -> None:
    model = torch.nn.Linear(2, 2).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    there = pickle.loads(pickle.dumps(model))
    assert torch.equal(there.weight, model.weight.cpu())
    state = pickle.loads(pickle.dumps(optimizer.state_dict()))
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(state)
    assert fresh.state[model.weight]["exp_avg"].device.type == device


def test_module_and_device_objects_pickle() -> None:
    assert pickle.loads(pickle.dumps(torch.device("sinter:0"))) == torch.device("sinter:0")
