"""Scaled dot product attention takes the CPU's flash kernel where the CPU does, with its values."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

MASKS = ["none", "causal", "bool", "float"]


def run(where: str, mask: str, dtype: torch.dtype, backend: SDPBackend | None = None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 16, 8, dtype=dtype) for _ in range(3))
    q, k, v = (x.to(where).requires_grad_() for x in (q, k, v))
    options: dict = {"is_causal": mask == "causal"}
    if mask == "bool":
        options["attn_mask"] = torch.ones(16, 16, dtype=torch.bool, device=where).tril()
    elif mask == "float":
        options["attn_mask"] = torch.linspace(-1, 1, 256).reshape(16, 16).to(where, dtype)
    if backend is None:
        out = attention(q, k, v, **options)
    else:
        with sdpa_kernel(backend):
            out = attention(q, k, v, **options)
    grads = torch.autograd.grad(out.sum(), (q, k, v))
    return [tensor.detach().cpu() for tensor in (out, *grads)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", MASKS)
def test_equals_the_cpu_to_the_bit(mask: str, dtype: torch.dtype, device: str) -> None:
    for want, got in zip(run("cpu", mask, dtype), run(device, mask, dtype), strict=True):
        assert torch.equal(want, got)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_a_chosen_backend_is_used(backend: SDPBackend, device: str) -> None:
    for want, got in zip(
        run("cpu", "causal", torch.float32, backend), run(device, "causal", torch.float32, backend), strict=True
    ):
        assert torch.equal(want, got)


def test_flash_is_the_choice(device: str) -> None:
    names = []

    class Names(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(function.__name__)
            return function(*args, **(kwargs or {}))

    q = torch.rand(1, 2, 8, 4, device=device)
    with Names():
        attention(q, q, q)
    assert any("flash_attention_for_cpu" in name for name in names)


def test_dropout_in_attention(device: str) -> None:
    q = torch.rand(1, 2, 8, 4, device=device)
    torch.manual_seed(0)
    first = attention(q, q, q, dropout_p=0.5)
    torch.manual_seed(0)
    assert torch.equal(attention(q, q, q, dropout_p=0.5).cpu(), first.cpu())


def test_multihead_attention_module(device: str) -> None:
    def run(where: str) -> torch.Tensor:
        torch.manual_seed(0)
        module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        x = torch.randn(2, 5, 8)
        module.to(where)
        x = x.to(where)
        out, weights = module(x, x, x)
        return torch.cat([out.flatten(), weights.flatten()]).detach().cpu()

    assert torch.equal(run("cpu"), run(device))
