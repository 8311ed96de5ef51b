"""torch.func: vmap, grad, jvp, functional_call."""

from __future__ import annotations

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vmap


def both(function, device: str) -> None:
    """The function's results on the device and on the CPU are the same."""
    want, got = function("cpu"), function(device)
    for a, b in zip(torch.utils._pytree.tree_leaves(want), torch.utils._pytree.tree_leaves(got), strict=True):
        torch.testing.assert_close(b.cpu(), a)


def values(device: str, *shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).to(device)


CASES = {
    "vmap": lambda d: vmap(torch.dot)(values(d, 3, 4), values(d, 3, 4)),
    "vmap of vmap": lambda d: vmap(vmap(torch.mul))(values(d, 2, 3, 4), values(d, 2, 3, 4)),
    "in_dims": lambda d: vmap(torch.mv, in_dims=(None, 1))(values(d, 2, 3), values(d, 3, 5)),
    "grad": lambda d: grad(lambda x: x.tanh().sum())(values(d, 5)),
    "grad of grad": lambda d: grad(lambda x: grad(lambda y: y.pow(3).sum())(x).sum())(values(d, 3)),
    "per sample": lambda d: vmap(grad(lambda w, x: (w * x).sum().square()), in_dims=(None, 0))(
        values(d, 3), values(d, 4, 3)
    ),
    "jacrev": lambda d: jacrev(lambda x: x.softmax(0))(values(d, 4)),
    "hessian": lambda d: hessian(lambda x: x.pow(3).sum())(values(d, 3)),
    "jvp": lambda d: jvp(torch.sigmoid, (values(d, 3),), (values(d, 3),)),
    "argmax": lambda d: vmap(lambda x: x.argmax())(values(d, 3, 4)),
    "conv": lambda d: vmap(lambda x: torch.nn.functional.conv1d(x, values(d, 2, 1, 3)))(values(d, 3, 1, 1, 8)),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_cpu(case: str, device: str) -> None:
    both(CASES[case], device)


def test_ensemble(device: str) -> None:
    def run(where: str) -> torch.Tensor:
        torch.manual_seed(0)
        models = [torch.nn.Linear(3, 2) for _ in range(4)]
        for model in models:
            model.to(where)
        params, buffers = stack_module_state(models)
        call = lambda p, b, x: functional_call(models[0], (p, b), (x,))  # noqa: E731
        return vmap(call, in_dims=(0, 0, None))(params, buffers, values(where, 5, 3))

    both(run, device)


def test_random_under_vmap(device: str) -> None:
    x = torch.zeros(3, 1000, device=device)
    different = vmap(lambda x: torch.nn.functional.dropout(x + 1), randomness="different")(x)
    same = vmap(lambda x: torch.nn.functional.dropout(x + 1), randomness="same")(x)
    assert not torch.equal(different[0].cpu(), different[1].cpu())
    assert torch.equal(same[0].cpu(), same[1].cpu())


def test_printing_inside_vmap(device: str) -> None:
    texts = []
    vmap(lambda x: texts.append(str(x)) or x)(torch.ones(2, 3, device=device))
    assert "BatchedTensor" in texts[0] and device in texts[0]
