"""Optimizers end the graph, whatever class they are; the default implementations are those of a CPU or better."""

from __future__ import annotations

import time

import pytest
import torch

from support import device as under_test


def trained(optimizer_class: type, device: str, steps: int = 3, **options: object) -> tuple[dict, torch.nn.Module]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = optimizer_class(model.parameters(), **options)
    batch = torch.ones(2, 4, device=device)

    def loop() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    under_test.sync()
    return under_test.counted(loop, "graphs_ended", "optimizer_steps", "syncs")[1], model


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_each_step_ends_one_graph_and_waits_for_nothing(name: str, device: str) -> None:
    counts, _ = trained(getattr(torch.optim, name), device, lr=0.01)
    assert counts == {"graphs_ended": 3, "optimizer_steps": 3, "syncs": 0}


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_implementations(options: dict, device: str) -> None:
    _, got = trained(torch.optim.AdamW, device, 5, **options)
    _, want = trained(torch.optim.AdamW, "cpu", 5, **options)
    for a, b in zip(want.parameters(), got.parameters(), strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-6, atol=1e-7)


class SignDescent(torch.optim.Optimizer):
    """A user's own optimizer: overrides step(), calls no hook itself."""

    def __init__(self, params, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad.sign(), alpha=-group["lr"])


def test_a_users_optimizer_counts_too(device: str) -> None:
    counts, _ = trained(SignDescent, device)
    assert counts["optimizer_steps"] == 3 == counts["graphs_ended"]


def test_a_cpu_optimizer_ends_nothing(device: str) -> None:
    pending = torch.ones(2, device=device) * 2
    counts, _ = trained(torch.optim.SGD, "cpu", lr=0.1)
    assert counts["optimizer_steps"] == 0
    assert pending.tolist() == [2.0, 2.0]


def test_groups_of_which_one_is_ours(device: str) -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([{"params": [a]}, {"params": [b]}], 0.5)
    a.sum().backward()
    b.sum().backward()
    _, counts = under_test.counted(optimizer.step, "optimizer_steps")
    assert counts == {"optimizer_steps": 1} and b.tolist() == a.tolist() == [0.5, 0.5]


def test_closures_and_lbfgs(device: str) -> None:
    def run(where: str) -> float:
        x = torch.tensor([3.0, -2.0], device=where, requires_grad=True)
        optimizer = torch.optim.LBFGS([x], max_iter=5)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (x - 1).square().sum()
            loss.backward()
            return loss

        for _ in range(2):
            loss = optimizer.step(closure)
        return loss.item()

    assert run(device) == run("cpu")


def test_learning_rate_changes_make_no_new_program(device: str) -> None:
    model = torch.nn.Linear(4, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def loop(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 4, device=device)).square().mean().backward()
            optimizer.step()
            schedule.step()

    loop(4)
    assert under_test.counted(lambda: loop(6), "graphs_planned")[1] == {"graphs_planned": 0}


def test_the_hook_is_cheap() -> None:
    from torch_sinter._src.hooks import optimizer as hook

    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(200)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(1000):
            hook._before_step(optimizer, (), {})
            hook._after_step(optimizer, (), {})
        best = min(best, (time.perf_counter() - start) / 1000)
    assert best < 5e-6


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.AdamW])
def test_a_failed_first_step_leaves_no_state(optimizer_class: type, device: str) -> None:
    embedding = torch.nn.Embedding(3, 2).to(device)
    options = {"momentum": 0.9} if optimizer_class is torch.optim.SGD else {}
    optimizer = optimizer_class(embedding.parameters(), 0.1, **options)

    def train(index: int) -> None:
        optimizer.zero_grad()
        embedding(torch.tensor([index], device=device)).sum().backward()
        optimizer.step()

    with pytest.raises(IndexError):
        train(7)
    assert not optimizer.state
    train(1)
    assert optimizer.state and embedding.weight.isfinite().all().item()


def test_the_hook_keeps_no_optimizer_alive(device: str) -> None:
    import gc
    import weakref

    parameter = torch.ones(2, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], 0.1)
    parameter.sum().backward()
    optimizer.step()
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


def test_parameters_stay_the_same_objects(device: str) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = list(model.parameters())
    model.to(device)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert model[1].weight is model[0].weight and model[0].weight.device.type == device
    start = model[0].weight.detach().clone()
    model(torch.arange(3, device=device)).square().mean().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight.cpu(), start.cpu())
