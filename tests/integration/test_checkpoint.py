"""torch.utils.checkpoint: the second forward draws the same dropout mask, and memory is really saved."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Dropout(0.3), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def gradients(use: str, device: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    blocks = torch.nn.ModuleList(Block(16) for _ in range(3)).to(device)
    x = torch.randn(8, 16).to(device).requires_grad_()
    torch.manual_seed(1)
    h = x
    for block in blocks:
        h = block(h) if use == "plain" else checkpoint(block, h, use_reentrant=use == "reentrant")
    h.square().mean().backward()
    return [tensor.grad.cpu() for tensor in (x, *blocks.parameters())]


@pytest.mark.parametrize("use", ["reentrant", "non-reentrant"])
def test_gradients_equal_those_without(use: str, device: str) -> None:
    for want, got in zip(gradients("plain", device), gradients(use, device), strict=True):
        assert torch.equal(want, got)


def test_the_state_after_is_that_of_one_forward(device: str) -> None:
    def state(use: str) -> torch.Tensor:
        gradients(use, device)
        return torch.sinter.get_rng_state()

    assert torch.equal(state("plain"), state("non-reentrant"))


def test_without_preserving_the_state_masks_differ(device: str) -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, device=device, requires_grad=True)
    masks = []

    def drop(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(x) * 1
        masks.append(y.detach())
        return y.square()

    checkpoint(drop, x, use_reentrant=False, preserve_rng_state=False).sum().backward()
    assert len(masks) == 2 and not torch.equal(masks[0].cpu(), masks[1].cpu())


def test_memory_is_saved(device: str) -> None:
    def peak(use: bool) -> int:
        torch.manual_seed(0)
        blocks = torch.nn.Sequential(*(Block(64) for _ in range(8))).to(device)
        x = torch.randn(512, 64, device=device, requires_grad=True)
        torch.sinter.synchronize()
        before = torch.sinter.memory_allocated()
        torch.sinter.reset_peak_memory_stats()
        out = checkpoint_sequential(blocks, 8, x, use_reentrant=False) if use else blocks(x)
        out.square().mean().backward()
        torch.sinter.synchronize()
        return torch.sinter.max_memory_allocated() - before

    assert peak(True) < 0.6 * peak(False)
