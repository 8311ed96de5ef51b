"""Batch normalisation with channels last, in training, against float64 and eager."""

from __future__ import annotations

import pytest
import torch

from support import device as under_test

D = under_test.NAME
SHAPES = [(4, 32, 7, 5), (2, 16, 1, 3), (33, 48, 6, 6), (3, 64, 20, 20), (1, 16, 2, 2), (257, 32), (2, 16), (600, 80)]


def run(shape: tuple[int, ...], dtype: torch.dtype, device: str, affine: bool, tracked: bool, offset: float, wide: bool):
    torch.manual_seed(0)
    x = (torch.randn(shape) * 2 + offset).to(dtype)
    gradient = torch.randn(shape).to(dtype)
    if len(shape) == 4:
        x, gradient = (t.to(memory_format=torch.channels_last) for t in (x, gradient))
    channels = shape[1]
    state = [torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(channels), torch.rand(channels)]
    if wide:
        x, gradient, state = x.double(), gradient.double(), [t.double() for t in state]
    x, gradient, state = x.to(device), gradient.to(device), [t.to(device) for t in state]
    weight, bias = (state[0].requires_grad_(), state[1].requires_grad_()) if affine else (None, None)
    mean, variance = (state[2], state[3]) if tracked else (None, None)
    x.requires_grad_()
    y = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, True, 0.3, 1e-5)
    y.backward(gradient)
    found = {"out": y.detach(), "input": x.grad}
    if affine:
        found |= {"weight": weight.grad, "bias": bias.grad}
    if tracked:
        found |= {"running mean": mean, "running variance": variance}
    return found


@pytest.mark.parametrize("offset", (0.0, 50.0))
@pytest.mark.parametrize("tracked", (True, False), ids=("tracked", "untracked"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_training(shape: tuple[int, ...], dtype: torch.dtype, tracked: bool, offset: float) -> None:
    exact = run(shape, dtype, "cpu", True, tracked, offset, wide=True)
    eager = run(shape, dtype, "cpu", True, tracked, offset, wide=False)
    ours = run(shape, dtype, D, True, tracked, offset, wide=False)
    for name, want in exact.items():
        assert ours[name].dtype == eager[name].dtype
        assert ours[name].stride() == eager[name].stride(), name
        error, known = ((t[name].cpu().double() - want).abs().max() for t in (ours, eager))
        rounding = torch.finfo(eager[name].dtype).eps * float(want.abs().max())
        assert error <= 1.5 * known + rounding, f"{name}: {error} against eager's {known}"


@pytest.mark.parametrize("shape", [(4, 32, 7, 5), (257, 32)], ids=str)
def test_without_parameters(shape: tuple[int, ...]) -> None:
    want, got = (run(shape, torch.float32, device, False, False, 0.0, wide=False) for device in ("cpu", D))
    for name in want:
        torch.testing.assert_close(got[name].cpu(), want[name], rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_stays_in_its_channel() -> None:
    x = torch.randn(4, 32, 3, 3).to(memory_format=torch.channels_last)
    x[1, 5, 0, 0], x[2, 7, 1, 1] = float("nan"), float("inf")
    for device in ("cpu", D):
        y = torch.nn.functional.batch_norm(x.to(device), None, None, training=True).cpu()
        broken = y.isnan().any(0).flatten(1).any(1).nonzero().flatten().tolist()
        assert broken == [5, 7], device


def test_the_same_bits_with_any_number_of_threads() -> None:
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, threads):
            torch.set_num_threads(count)
            result = run((33, 48, 20, 20), torch.float32, D, True, True, 1.0, wide=False)
            found.append({name: t.cpu() for name, t in result.items()})
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        for name, value in other.items():
            assert torch.equal(value.view(torch.int32), found[0][name].view(torch.int32)), name
