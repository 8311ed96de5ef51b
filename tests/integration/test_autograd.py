"""Gradients: on the thread that asks for them, with hooks, custom functions and other people's operators."""

from __future__ import annotations

import threading

import pytest
import torch

from support import scripts


def test_backward_runs_on_the_calling_thread(device: str) -> None:
    threads = set()

    class Note(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            threads.add(threading.get_ident())
            return grad

    x = torch.ones(3, device=device, requires_grad=True)
    Note.apply(x).sum().backward()
    assert x.grad.tolist() == [1.0] * 3
    assert threads == {threading.get_ident()}


def test_the_users_setting_is_left_as_it_was(device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    for enabled in (False, True):
        with torch.autograd.set_multithreading_enabled(enabled):
            x.sum().backward()
            assert torch.autograd.is_multithreading_enabled() is enabled
    with pytest.raises(RuntimeError):
        torch.autograd.backward(x.detach())
    assert torch.autograd.is_multithreading_enabled()


def test_a_value_read_in_a_hook(device: str) -> None:
    seen = []
    x = torch.arange(3.0, device=device, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: seen.append(grad.sum().item()))
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    (y * y).sum().backward()
    assert seen == [12.0, [0.0, 8.0, 16.0]]


def test_threads_train_at_once(device: str) -> None:
    def train(results: dict, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(8, 8, generator=generator).to(device).requires_grad_()
        for _ in range(20):
            loss = (torch.randn(4, 8, generator=generator).to(device) @ weight).square().mean()
            (grad,) = torch.autograd.grad(loss, weight)
            weight = (weight - 0.1 * grad).detach().requires_grad_()
        results[seed] = weight.detach().cpu()

    alone: dict = {}
    together: dict = {}
    for seed in range(4):
        train(alone, seed)
    threads = [threading.Thread(target=train, args=(together, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone[seed], together[seed]) for seed in range(4))


def test_reentrant_backward(device: str) -> None:
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.square()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                leaf.square().sum().backward()
            return grad * leaf.grad

    x = torch.arange(4.0, device=device, requires_grad=True)
    Inner.apply(x).sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_double_backward(device: str) -> None:
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    (first,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [6.0, 12.0]


def test_gradcheck(device: str) -> None:
    x = torch.rand(3, 4, device=device, dtype=torch.float64, requires_grad=True)
    w = torch.rand(4, 2, device=device, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: torch.tanh(x @ w).softmax(-1), (x, w))


def test_a_custom_operator_with_only_a_cpu_kernel(device: str) -> None:
    library = torch.library.Library("sinter_test_autograd", "FRAGMENT")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: torch.from_numpy(x.numpy() * 2), "CPU")
    torch.library.register_autograd("sinter_test_autograd::double", lambda ctx, grad: grad * 2, lib=library)
    x = torch.ones(3, device=device, requires_grad=True)
    y = torch.ops.sinter_test_autograd.double(x * 1)
    y.sum().backward()
    assert y.device.type == device and y.tolist() == [2.0] * 3 and x.grad.tolist() == [2.0] * 3


def test_saved_tensor_modified_in_place_is_noticed(device: str) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_anomaly_mode_names_the_forward(device: str) -> None:
    x = torch.tensor([-1.0], device=device, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True), pytest.warns(UserWarning), pytest.raises(RuntimeError, match="nan"):
        x.sqrt().sum().backward()


def test_a_cpu_backward_before_the_first_use() -> None:
    outcome = scripts.run(
        """
        import torch
        def train(device):
            torch.manual_seed(0)
            model = torch.nn.Linear(4, 2)
            model.to(device)
            loss = model(torch.ones(3, 4, device=device)).square().sum()
            loss.backward()
            return loss.item(), model.weight.grad.sum().item()
        print(train("cpu") == train("sinter") == train("cpu"))
        """
    )
    assert outcome.lines == ["True"]
