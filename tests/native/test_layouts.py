"""Images between convolutions lie with channels last, and nobody can tell but by the last bits."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from support import device as under_test

D = under_test.NAME


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.strided = nn.Conv2d(8, 16, 3, stride=2)
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)
        self.head = nn.Linear(4 * 6 * 6, 5)
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor, keep: bool = False) -> torch.Tensor:
        a = F.relu(self.norm(self.first(x)))
        b = F.gelu(self.second(a)) + a
        if keep:
            self.seen = [a.detach(), b.detach()]
        c = F.max_pool2d(self.strided(b), 2)
        return self.head(F.avg_pool2d(self.up(c), 1).flatten(1))


def step(net: Net, x: torch.Tensor, keep: bool) -> list[torch.Tensor]:
    loss = net(x, keep).square().mean()
    loss.backward()
    return [loss, *(p.grad for p in net.parameters()), *net.buffers(), *net.seen]


@pytest.mark.parametrize("keep", (False, True), ids=("hidden", "seen"))
@pytest.mark.parametrize("channels_last", (False, True))
def test_a_step(keep: bool, channels_last: bool) -> None:
    """Gradients, statistics and whatever the program keeps have eager's values and strides."""
    torch.manual_seed(0)
    net = Net()
    twin = copy.deepcopy(net).to(D)
    x = torch.randn(4, 3, 14, 14)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    for want, got in zip(step(net, x, keep), step(twin, x.to(D), keep), strict=True):
        assert want.stride() == got.stride()
        torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


def test_a_view_of_an_image_keeps_its_order() -> None:
    """flatten() of an image that lies with rows last is a view, so that image must stay as it is."""
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3)
    x = torch.randn(2, 3, 6, 6)
    weight = torch.randn(4 * 4 * 4, 3)
    want = conv(x).flatten(1) @ weight
    twin = copy.deepcopy(conv).to(D)
    got = twin(x.to(D)).flatten(1) @ weight.to(D)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("write", ("a[0].zero_()", "a[:, 1:2] *= 2", "a.view(-1)[5] = 3", "a.transpose(1, 2).add_(1)"))
def test_writes_through_views(write: str) -> None:
    torch.manual_seed(0)
    one, two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
    x = torch.randn(2, 3, 5, 5)

    def program(device: str) -> torch.Tensor:
        with torch.no_grad():
            a = copy.deepcopy(one).to(device)(x.to(device))
            exec(write, {"a": a})
            return copy.deepcopy(two).to(device)(F.relu(a)).cpu()

    torch.testing.assert_close(program(D), program("cpu"), rtol=1e-4, atol=1e-5)
