"""A graph that a bound cuts in the middle: values that only the rest of it uses are kept for it."""

from __future__ import annotations

import pytest
import torch

from support import device as under_test

pytestmark = pytest.mark.lazy


@pytest.fixture
def bound():
    limit = under_test.flag("MAX_GRAPH_OPS")
    yield lambda count: under_test.set_flag("MAX_GRAPH_OPS", count)
    under_test.set_flag("MAX_GRAPH_OPS", limit)


@pytest.mark.parametrize("count", [2, 3, 8, 15, 16, 17, 33])
def test_a_chain_whose_temporaries_are_gone(count: int, bound, device: str):
    x = torch.randn(8)
    y = x.to(device)
    bound(count)
    for _ in range(20):
        x, y = (x * 1.5).sin(), (y * 1.5).sin()
    assert torch.equal(x, y.cpu())


@pytest.mark.exact
@pytest.mark.parametrize("count", [4, 7, 16, 29])
def test_training(count: int, bound, device: str):
    torch.manual_seed(0)
    losses: dict[str, list[float]] = {}
    start = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).state_dict()
    data = torch.randn(5, 4)
    for where in ("cpu", device):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
        model.load_state_dict(start)
        model.to(where)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05, foreach=False)
        x = data.to(where)
        bound(count)
        history = []
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
        losses[where] = [loss.item() for loss in history]
    assert losses["cpu"] == losses[device]
