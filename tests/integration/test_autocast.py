"""Autocast follows the CPU's policy, operator by operator."""

from __future__ import annotations

import pytest
import torch

LOW = [torch.bfloat16, torch.float16]


def operators(device: str) -> dict:
    a, b = (torch.rand(4, 4, device=device) for _ in range(2))
    image, kernel = torch.rand(1, 2, 5, 5, device=device), torch.rand(3, 2, 3, 3, device=device)
    q = torch.rand(1, 2, 4, 8, device=device)
    functional = torch.nn.functional
    return {
        "mm": a @ b,
        "linear": functional.linear(a, b),
        "baddbmm": torch.baddbmm(a[None], a[None], b[None]),
        "conv2d": functional.conv2d(image, kernel),
        "sdpa": functional.scaled_dot_product_attention(q, q, q),
        "softmax": a.softmax(-1),
        "log_softmax": a.log_softmax(-1),
        "layer_norm": functional.layer_norm(a, (4,)),
        "gelu": functional.gelu(a),
        "exp": a.exp(),
        "pow": a.pow(2),
        "sum": a.sum(),
        "mse_loss": functional.mse_loss(a, b),
        "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits(a, b),
        "cat": torch.cat([a, a.to(torch.bfloat16)]),
        "add": a + a.to(torch.bfloat16),
        "cumsum": a.cumsum(0),
        "prod": a.prod(),
        "norm": a.norm(),
        "mm then layer_norm": functional.layer_norm(a @ b, (4,)),
        "mm then softmax": (a @ b).softmax(-1),
        "mm then sum": (a @ b).sum(),
        "mm then exp": (a @ b).exp(),
        "mm then mse_loss": functional.mse_loss(a @ b, b),
        "addcmul": torch.addcmul(a, a, b.to(torch.bfloat16)),
    }


@pytest.mark.parametrize("dtype", LOW)
def test_result_types_equal_the_cpus(dtype: torch.dtype, device: str) -> None:
    with torch.autocast("cpu", dtype):
        want = {name: result.dtype for name, result in operators("cpu").items()}
    with torch.autocast(device, dtype):
        got = {name: result.dtype for name, result in operators(device).items()}
    assert got == want
    assert got["mm"] == dtype


@pytest.mark.exact
@pytest.mark.parametrize("dtype", LOW)
def test_training_equals_the_cpus(dtype: torch.dtype, device: str) -> None:
    def train(where: str) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4)
        )
        data = torch.randn(10, 6, 8)
        model.to(where)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
        losses = []
        for batch in data:
            with torch.autocast(where, dtype):
                loss = torch.nn.functional.cross_entropy(model(batch.to(where)), torch.arange(6, device=where) % 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert train(device) == train("cpu")


def test_the_default_type_is_the_cpus(device: str) -> None:
    with torch.autocast(device):
        got = torch.get_autocast_dtype(device)
    assert got == torch.get_autocast_dtype("cpu")


def test_nesting_and_switching_off(device: str) -> None:
    a = torch.rand(2, 2, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32 and not torch.is_autocast_enabled(device)


def test_cpu_autocast_leaves_the_device_alone(device: str) -> None:
    a = torch.rand(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert (a.to(device) @ a.to(device)).dtype == torch.float32
    with torch.autocast(device, torch.bfloat16):
        assert (a @ a).dtype == torch.float32


def test_unsupported_types_are_named(device: str) -> None:
    with pytest.warns(UserWarning, match="torch.bfloat16, torch.float16"), torch.autocast(device, torch.float64):
        pass


def test_weights_are_cast_once_in_a_block(device: str) -> None:
    weight = torch.rand(4, 4, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        first, second = weight @ weight, weight @ weight
    (first.sum() + second.sum()).backward()
    assert weight.grad.dtype == torch.float32


def test_custom_functions_see_the_setting(device: str) -> None:
    class Multiply(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="sinter")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="sinter")
        def backward(ctx, grad):
            assert torch.is_autocast_enabled("sinter")
            a, b = ctx.saved_tensors
            return grad @ b.T, a.T @ grad

    a = torch.rand(2, 2, device=device, requires_grad=True)
    with torch.autocast(device, torch.bfloat16):
        out = Multiply.apply(a, a)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert a.grad is not None
