"""Twenty steps of training on the device give the losses and weights of eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from models.workloads import ALL, Workload
from support import compare

STEPS = 20


def train(w: Workload, device: str, autocast: bool, **optimizer: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model = w.make().to(device)
    optim = w.optimizer(model.parameters(), **w.options, **optimizer)
    losses = []
    for step in range(STEPS):
        data = [t.to(device) for t in w.batch(torch.Generator().manual_seed(step))]
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            loss = w.loss(model, *data)
        loss.backward()
        optim.step()
        optim.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return [loss.item() for loss in losses], copy.deepcopy(model.state_dict())


def follow(want: list[float], got: list[float], workload: Workload, autocast: bool) -> bool:
    """As the engine promises; in bf16, kernels of ours stay within what bf16 itself does to the losses."""
    if not (autocast and compare.runs_kernels_of_ours()):
        return compare.same_losses(want, got)
    exact, _ = train(workload, "cpu", False)
    spread = max(abs(a - b) for a, b in zip(exact, want, strict=True))
    return max(abs(a - b) for a, b in zip(want, got, strict=True)) <= 1.5 * spread


@pytest.mark.parametrize("autocast", (False, True), ids=("fp32", "bf16"))
@pytest.mark.parametrize("workload", ALL.values(), ids=ALL)
def test_equal_with_one_implementation(workload: Workload, autocast: bool, device: str) -> None:
    """Both sides use the optimizer's plain loop: bits where the same kernels run."""
    want, weights = train(workload, "cpu", autocast, foreach=False)
    got, moved = train(workload, device, autocast, foreach=False)
    assert follow(want, got, workload, autocast)
    if not compare.runs_kernels_of_ours():  # where they are not the same, Adam makes a step of the sign of a rounding
        assert not compare.differences(dict(weights), dict(moved))


@pytest.mark.parametrize("autocast", (False, True), ids=("fp32", "bf16"))
@pytest.mark.parametrize("workload", ALL.values(), ids=ALL)
def test_close_with_defaults(workload: Workload, autocast: bool, device: str) -> None:
    """The device takes the foreach form by default, the CPU the loop: rounding may differ, nothing else."""
    want, _ = train(workload, "cpu", autocast)
    got, _ = train(workload, device, autocast)
    if compare.runs_kernels_of_ours():
        assert follow(want, got, workload, autocast)
    else:
        assert got == pytest.approx(want, rel=1e-6 if not autocast else 1e-4)


@pytest.mark.parametrize("workload", ALL.values(), ids=ALL)
def test_fused_optimizer(workload: Workload, device: str) -> None:
    want, _ = train(workload, "cpu", False, fused=True)
    got, _ = train(workload, device, False, fused=True)
    assert compare.same_losses(want, got)


def test_channels_last(device: str) -> None:
    """Memory formats travel with the module and the batch, and come out as on the CPU."""
    torch.manual_seed(0)
    one = ALL["convolutional"].make().to(memory_format=torch.channels_last)
    two = copy.deepcopy(one).to(device)
    x = torch.randn(4, 3, 16, 16).to(memory_format=torch.channels_last)
    a, b = one[:6](x), two[:6](x.to(device))
    assert not compare.differences(a, b)
    a.square().mean().backward()
    b.square().mean().backward()
    for p, q in zip(one[:6].parameters(), two[:6].parameters(), strict=True):
        assert not compare.differences(p.grad, q.grad)
