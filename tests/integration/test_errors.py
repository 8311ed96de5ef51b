"""Mistakes: the CPU's exception type, at a useful place, and the process goes on."""

from __future__ import annotations

import pytest
import torch

AT_ONCE = {
    "shapes": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "broadcast": lambda d: torch.ones(2, device=d) + torch.ones(3, device=d),
    "in place dtype": lambda d: torch.ones(2, dtype=torch.int64, device=d).add_(0.5),
    "dimension": lambda d: torch.ones(2, device=d).sum(3),
    "view": lambda d: torch.ones(2, 3, device=d).t().view(6),
    "index": lambda d: torch.ones(2, device=d)[5],
    "leaf": lambda d: torch.ones(2, device=d, requires_grad=True).add_(1),
    "reshape": lambda d: torch.ones(5, device=d).reshape(2, 3),
    "cat": lambda d: torch.cat([torch.ones(2, 2, device=d), torch.ones(2, 3, device=d)], 0),
    "linear": lambda d: torch.nn.Linear(3, 2, device=d)(torch.ones(1, 4, device=d)),
    "conv": lambda d: torch.nn.Conv2d(3, 2, 3, device=d)(torch.ones(1, 4, 8, 8, device=d)),
    "item": lambda d: torch.ones(2, device=d).item(),
}


@pytest.mark.parametrize("mistake", AT_ONCE)
def test_seen_when_recording(mistake: str, device: str) -> None:
    with pytest.raises(Exception) as want:
        AT_ONCE[mistake]("cpu")
    with pytest.raises(type(want.value)) as got:
        AT_ONCE[mistake](device)
    assert str(got.value).splitlines()[0].replace(f"{device}:0", "cpu") == str(want.value).splitlines()[0]


LATER = {
    "embedding": lambda d: torch.nn.functional.embedding(torch.tensor([0, 9], device=d), torch.ones(3, 2, device=d)),
    "gather": lambda d: torch.ones(3, device=d).gather(0, torch.tensor([7], device=d)),
    "index": lambda d: torch.ones(3, device=d)[torch.tensor([4], device=d)],
    "nll_loss": lambda d: torch.nn.functional.nll_loss(torch.zeros(1, 3, device=d), torch.tensor([5], device=d)),
    "dtype": lambda d: torch.ones(2, device=d).bitwise_and(torch.ones(2, device=d)),
    "cholesky": lambda d: torch.linalg.cholesky(-torch.eye(2, device=d)),
}


@pytest.mark.parametrize("mistake", LATER)
def test_seen_when_it_runs(mistake: str, device: str) -> None:
    with pytest.raises(Exception) as want:
        LATER[mistake]("cpu")
    with pytest.raises(type(want.value)):
        LATER[mistake](device).sum().item()
    assert (torch.ones(2, device=device) + 1).tolist() == [2.0, 2.0]


def test_a_failed_step_leaves_the_weights(device: str) -> None:
    embedding = torch.nn.Embedding(4, 3).to(device)
    optimizer = torch.optim.SGD(embedding.parameters(), 0.5)

    def train(index: int) -> None:
        optimizer.zero_grad()
        embedding(torch.tensor([0, index], device=device)).sum().backward()
        optimizer.step()

    train(1)
    before = embedding.weight.detach().cpu().clone()
    with pytest.raises(IndexError):
        train(10)
        torch.sinter.synchronize()
    assert torch.equal(embedding.weight.cpu(), before)
    train(2)
    assert not torch.equal(embedding.weight.cpu(), before)


def test_who_reads_a_result_that_never_came_gets_the_reason(device: str) -> None:
    x = torch.nn.functional.embedding(torch.tensor([9], device=device), torch.ones(3, 2, device=device))
    with pytest.raises(IndexError):
        torch.sinter.synchronize()
    with pytest.raises(IndexError):
        x.sum().item()
    with pytest.raises(IndexError):
        x.cpu()


def test_blocking_mode_raises_on_the_line(device: str) -> None:
    import torch_sinter

    with torch_sinter.flags.override(BLOCKING=True), pytest.raises(RuntimeError, match="out of bounds"):
        torch.ones(3, device=device).gather(0, torch.tensor([7], device=device))


def test_unsupported_layouts_say_so(device: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=r"(?i)sparse|sinter"):
        torch.eye(2, device=device).to_sparse() @ torch.eye(2, device=device)
