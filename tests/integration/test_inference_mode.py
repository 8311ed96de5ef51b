"""torch.inference_mode and no_grad."""

from __future__ import annotations

import pytest
import torch


def test_results_are_inference_tensors(device: str) -> None:
    model = torch.nn.Linear(3, 2).to(device)
    x = torch.ones(1, 3, device=device)
    with torch.inference_mode():
        y = model(x)
        z = y[0].mul_(2)
        fresh = torch.zeros(2, device=device)
    assert y.is_inference() and z.is_inference() and fresh.is_inference() and not y.requires_grad
    assert torch.equal(y.cpu(), model.cpu()(x.cpu()) * 2)
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        y.add_(1)


def test_outside_tensors_are_normal_again(device: str) -> None:
    with torch.inference_mode():
        torch.ones(1, device=device)
    x = torch.ones(1, device=device, requires_grad=True)
    (x * 2).backward()
    assert x.grad.item() == 2.0


def test_pending_at_the_end_of_the_block(device: str) -> None:
    x = torch.arange(3.0, device=device)
    with torch.inference_mode():
        y = x * 2
    z = x * y.clone()
    assert z.tolist() == [0.0, 2.0, 8.0]


def test_first_use_in_inference_mode() -> None:
    from support import scripts

    outcome = scripts.run(
        """
        import torch
        with torch.inference_mode():
            x = torch.ones(2, device="sinter")
        y = torch.ones(2, device="sinter", requires_grad=True)
        (y * 3).sum().backward()
        print(x.is_inference(), y.grad.tolist())
        """
    )
    assert outcome.lines == ["True [3.0, 3.0]"]
