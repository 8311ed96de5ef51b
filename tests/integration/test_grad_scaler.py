"""GradScaler on the device: same scales, same skipped steps, same weights as on the CPU."""

from __future__ import annotations

import pytest
import torch


def train(where: str, fused: bool | None, poison: set[int]) -> tuple[list[float], list[float], torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 3)
    data = torch.randn(8, 5, 6)
    model.to(where)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, foreach=False, fused=fused)
    scaler = torch.amp.GradScaler(where, init_scale=2.0**10, growth_interval=3)
    scales, losses = [], []
    for step, batch in enumerate(data):
        loss = model(batch.to(where)).square().mean()
        if step in poison:
            loss = loss * float("inf")
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        losses.append(loss.item())
    return scales, losses, model.weight.detach().cpu()


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("poison", [set(), {2, 5}])
def test_equals_the_cpu(fused: bool | None, poison: set[int], device: str) -> None:
    scales, losses, weight = train(device, fused, poison)
    want_scales, want_losses, want_weight = train("cpu", fused, poison)
    assert scales == want_scales and losses == want_losses
    assert torch.equal(weight, want_weight)
    assert len(set(scales)) > 1  # it grew or backed off at least once


def test_state_goes_round(device: str) -> None:
    scaler = torch.amp.GradScaler(device, init_scale=4.0)
    scaler.scale(torch.ones(1, device=device))
    state = scaler.state_dict()
    other = torch.amp.GradScaler(device)
    other.load_state_dict(state)
    assert other.get_scale() == 4.0
