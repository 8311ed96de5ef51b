"""FakeTensor and torch.compile's front ends: shapes on the device without data."""

from __future__ import annotations

import torch
from torch._subclasses import FakeTensorMode

from support import device as under_test


def test_fake_tensors_keep_the_device(device: str) -> None:
    with FakeTensorMode() as mode:
        x = torch.empty(4, 3, device=device)
        y = torch.nn.functional.linear(x, torch.empty(5, 3, device=device)).softmax(-1)
        assert y.shape == (4, 5) and y.device == torch.device(device, 0)
    real = mode.from_tensor(torch.ones(2, device=device))
    assert real.device == torch.device(device, 0)


def test_nothing_is_recorded_for_fakes(device: str) -> None:
    def fake() -> None:
        with FakeTensorMode():
            (torch.ones(4, device=device) + 1).sum()

    assert under_test.counted(fake, "ops_recorded", "ops_run_now")[1] == {"ops_recorded": 0, "ops_run_now": 0}


def test_make_fx(device: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: (x.sin() + torch.ones(3, device=device)).sum(), tracing_mode="fake")(
        torch.zeros(3, device=device)
    )
    assert graph(torch.zeros(3, device=device)).item() == 3.0
    assert device in graph.code


def test_dynamo_front_ends(device: str) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            y = x @ w
        return (y.float() + torch.arange(3, device=x.device)).tanh().sum()

    x, w = torch.rand(2, 4, device=device), torch.rand(4, 3, device=device, requires_grad=True)
    want = function(x, w)
    (want_grad,) = torch.autograd.grad(want, w)
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        got = torch.compile(function, backend=backend, fullgraph=True)(x, w)
        (grad,) = torch.autograd.grad(got, w)
        assert got.item() == want.item() and torch.equal(grad.cpu(), want_grad.cpu())


def test_dynamo_knows_the_device(device: str) -> None:
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device(device)
    assert interface.is_available() and interface.device_count() == 1 and interface.current_device() == 0
    assert interface.is_bf16_supported()
    assert interface.get_device_properties(0).name == torch.sinter.get_device_name()
    interface.synchronize()
