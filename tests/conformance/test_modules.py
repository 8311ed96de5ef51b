"""Every module of PyTorch's database: training and evaluation, forward and backward, gradients and buffers, as on the CPU."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import ModuleInfo, ModuleInput, module_db

from conformance.exceptions import ROUNDED_OFTEN
from conformance.op_runs import random_direction
from support import compare
from support.moving import Mover, tensors_of

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SEED = 7


@dataclasses.dataclass
class Side:
    """A module and its arguments on one device, and what a pass over them gave."""

    module: torch.nn.Module
    arguments: tuple[Any, Any]
    result: Any = None
    error: Exception | None = None

    def run(self) -> bool:
        """Whether random numbers were drawn (on the CPU)."""
        torch.manual_seed(SEED)
        before = torch.random.default_generator.get_state()
        args, kwargs = self.arguments
        try:
            self.result = self.module(*args, **kwargs)
            outputs = [t for t in tensors_of(self.result) if t.requires_grad]
            if outputs:
                torch.autograd.backward(outputs, [random_direction(t) for t in outputs])
        except Exception as error:
            self.error = error.with_traceback(None)
        return not torch.equal(before, torch.random.default_generator.get_state())

    def state(self) -> dict[str, Any]:
        parameters = dict(self.module.named_parameters())
        return {
            "result": self.result,
            "gradients": {name: p.grad for name, p in parameters.items()},
            "input gradients": [t.grad for t in tensors_of(self.arguments)],
            "state": dict(self.module.state_dict()),
            "buffers": dict(self.module.named_buffers()),
        }


def sides(info: ModuleInfo, sample: ModuleInput, dtype: torch.dtype, training: bool, device: str) -> tuple[Side, Side]:
    constructor, forward = sample.constructor_input, sample.forward_input
    torch.manual_seed(SEED)
    module = info.module_cls(*constructor.args, **constructor.kwargs).to(dtype).train(training)
    arguments = (forward.args, forward.kwargs)
    return (
        Side(copy.deepcopy(module), Mover("cpu")(arguments)),
        Side(copy.deepcopy(module).to(device), Mover(device)(arguments)),
    )


def check(info: ModuleInfo, dtype: torch.dtype, device: str, most: int) -> None:
    """At most so many samples, evenly chosen. All are recorded before the first value is read."""
    if dtype not in (*info.dtypes, torch.bfloat16):
        pytest.skip("the database has no samples of this dtype")
    if compare.runs_kernels_of_ours() and info.name in ROUNDED_OFTEN and dtype.itemsize == 2:
        pytest.skip("rounded to 16 bits many times over: the reference engine compares it")
    runs = []
    for training in (True, False):
        samples = [
            sample
            for sample in info.module_inputs_func(
                info, device="cpu", dtype=dtype, requires_grad=True, training=training
            )
            if sample.forward_input is not None
        ]
        for sample in samples[:: 1 + len(samples) // most]:
            want, got = sides(info, sample, dtype, training, device)
            random = want.run()
            got.run()
            runs.append((f"{'train' if training else 'eval'} {sample.desc}", want, got, random))
    failures = []
    for title, want, got, random in runs:
        if want.error is not None or got.error is not None:
            if type(want.error) is not type(got.error):
                failures.append(f"{title}: raises {got.error!r}, the CPU {want.error!r}"[:400])
            continue
        found = compare.differences(want.state(), got.state(), values=not random)
        if found:
            failures.append(f"{title}: {'; '.join(found)[:400]}")
    assert not failures, f"{len(failures)} of {len(runs)} samples differ\n" + "\n".join(failures[:6])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_module(info: ModuleInfo, dtype: torch.dtype, device: str) -> None:
    check(info, dtype, device, most=40)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_all_samples(info: ModuleInfo, dtype: torch.dtype, device: str) -> None:
    check(info, dtype, device, most=10_000)
