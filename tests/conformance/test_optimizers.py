"""Every optimizer of PyTorch's database, in each of its implementations, with the weights and states that the CPU gets."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput, optim_db

from conformance.exceptions import CHAOTIC
from support import compare

STEPS = 6
LEFT_OUT = {"SparseAdam": "it takes sparse gradients only, and the device has no sparse tensors"}
OPTIMIZERS = [info for info in optim_db if info.optim_cls.__name__ not in LEFT_OUT]


class Net(nn.Module):
    """Matrices only where an optimizer asks for them (Muon)."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 7, bias=bias), nn.Linear(7, 3, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def train(info: OptimizerInfo, kwargs: dict[str, Any], device: str) -> dict[str, Any]:
    """Weights, losses and optimizer state after some steps; the error if there was one."""
    torch.manual_seed(0)
    net = Net(bias=info.optim_cls.__name__ != "Muon").to(device)
    losses, error = [], None
    try:
        optimizer = info.optim_cls(net.parameters(), **copy.deepcopy(kwargs))
        for step in range(STEPS):
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step)).to(device)

            def closure(x: torch.Tensor = x) -> torch.Tensor:
                optimizer.zero_grad(set_to_none=True)
                loss = (net(x) - 1).square().mean()
                loss.backward()
                return loss

            if info.step_requires_closure:
                losses.append(optimizer.step(closure).detach())
            else:
                losses.append(closure().detach())
                optimizer.step()
        return {
            "losses": losses,
            "weights": dict(net.named_parameters()),
            "state": optimizer.state_dict(),
            "error": None,
        }
    except (RuntimeError, ValueError, TypeError, AssertionError) as problem:
        error = type(problem)
        text = str(problem)
    return {"error": error, "text": text}


def cases() -> Iterator[Any]:
    for info in OPTIMIZERS:
        for implementation in ("forloop", *(name for name in ("foreach", "fused") if name in info.supported_impls)):
            yield pytest.param(info, implementation, id=f"{info.optim_cls.__name__}-{implementation}")


def chosen(info: OptimizerInfo, implementation: str) -> dict[str, bool]:
    if implementation != "forloop":
        return {implementation: True}
    return {"foreach": False} if "foreach" in info.supported_impls else {}


def inputs(info: OptimizerInfo) -> list[OptimizerInput]:
    return info.optim_inputs_func(device="cpu")


@pytest.mark.parametrize("info, implementation", cases())
def test_like_cpu(info: OptimizerInfo, implementation: str, device: str) -> None:
    if compare.runs_kernels_of_ours() and info.optim_cls.__name__ in CHAOTIC:
        pytest.skip(f"{CHAOTIC[info.optim_cls.__name__]}: the reference engine compares it")
    for sample in inputs(info):
        if implementation == "fused" and sample.kwargs.get("foreach"):
            continue
        kwargs = sample.kwargs | chosen(info, implementation)
        want, got = train(info, kwargs, "cpu"), train(info, kwargs, device)
        if want["error"]:
            assert got["error"] is want["error"], f"{sample.desc}: {got.get('text', 'no error')} against {want['text']}"
            continue
        assert not got["error"], f"{sample.desc}: {got['text']}"
        found = compare.differences(want, got, sample.desc)
        assert not found, "\n".join(found[:10])


@pytest.mark.lazy
@pytest.mark.parametrize("foreach", (False, True), ids=("forloop", "foreach"))
@pytest.mark.parametrize(
    "info", [info for info in OPTIMIZERS if info.has_capturable_arg], ids=lambda info: info.optim_cls.__name__
)
def test_capturable(info: OptimizerInfo, foreach: bool, device: str) -> None:
    """The CPU has no capturable form, which keeps step counts in tensors and rounds elsewhere; it must come out close."""
    for sample in inputs(info):
        kwargs = {key: value for key, value in sample.kwargs.items() if key not in ("capturable", "foreach")}
        if any(isinstance(value, torch.Tensor) for value in kwargs.values()):
            continue
        want = train(info, kwargs | {"foreach": foreach}, "cpu")
        got = train(info, kwargs | {"foreach": foreach, "capturable": True}, device)
        assert not got["error"], f"{sample.desc}: {got['text']}"
        for name, weight in want["weights"].items():
            torch.testing.assert_close(
                got["weights"][name].cpu(), weight, rtol=1e-5, atol=1e-6, msg=lambda m, s=sample: f"{s.desc}: {m}"
            )
        for state in got["state"]["state"].values():
            assert state["step"].device.type == device


@pytest.mark.parametrize("info", OPTIMIZERS, ids=lambda info: info.optim_cls.__name__)
def test_errors(info: OptimizerInfo, device: str) -> None:
    for case in info.optim_error_inputs_func(device="cpu", dtype=torch.float32) if info.optim_error_inputs_func else ():
        sample = case.optimizer_error_input
        if sample.params is not None and any(isinstance(p, torch.Tensor) and p.is_sparse for p in sample.params):
            continue
        want, got = train(info, sample.kwargs, "cpu"), train(info, sample.kwargs, device)
        if want["error"] and "foreach" not in sample.kwargs:  # which implementations a device has is its own affair
            assert got["error"] is want["error"], sample.desc
