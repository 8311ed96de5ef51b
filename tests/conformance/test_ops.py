"""Every operator of PyTorch's database, all samples, against the CPU. See op_runs.py for what is compared."""

from __future__ import annotations

import re

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from conformance import op_runs
from conformance.exceptions import EXPECTED, EXPECTED_OF_OURS, LEFT_OUT, ROUNDED_OFTEN, UNINITIALISED
from support import compare

OPS = [op for op in op_db if op.name not in LEFT_OUT]
FEW = slice(0, 3)  # what is shown of an operator's failures


def check(
    op: OpInfo, request: pytest.FixtureRequest, lazy: bool, dtypes: tuple[torch.dtype, ...] = op_runs.DTYPES
) -> None:
    total = op_runs.Report()
    lines = []
    ours = compare.runs_kernels_of_ours()
    if ours and op.name in ROUNDED_OFTEN:
        dtypes = tuple(dtype for dtype in dtypes if dtype.itemsize > 2 or not dtype.is_floating_point)
    for dtype in dtypes:
        report = op_runs.compare_op(op, dtype, values=op.name not in UNINITIALISED, lazy=lazy)
        total.add(report)
        told = [
            f"{dtype} {call.variant} sample {call.index} {call.label}: {'; '.join(found)}"
            for call, found in report.failures
        ]
        if op.name in EXPECTED:
            told = [line for line in told if not re.search(EXPECTED[op.name][0], line)]
        if ours and op.name in EXPECTED_OF_OURS:
            told = [line for line in told if not re.search(EXPECTED_OF_OURS[op.name][0], line)]
        lines += told[FEW]
    request.config.stash[op_runs.TOTALS].add(total)
    assert not lines, f"{len(total.failures)} of {sum(total.calls.values())} calls differ from the CPU\n" + "\n".join(
        lines
    )


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.formatted_name)
def test_recorded_together(op: OpInfo, request: pytest.FixtureRequest) -> None:
    """All samples of a variant are recorded before the first result is read."""
    check(op, request, lazy=True)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.formatted_name)
def test_one_by_one(op: OpInfo, request: pytest.FixtureRequest) -> None:
    """Each result is read before the next call."""
    check(op, request, lazy=False)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.formatted_name)
def test_other_dtypes(op: OpInfo, request: pytest.FixtureRequest) -> None:
    others = (torch.float16, torch.complex128, torch.int32, torch.int16, torch.int8, torch.uint8)
    check(op, request, lazy=True, dtypes=others)
