"""Autocast on the device follows the CPU's policy, operator by operator: the same dtypes, and the same bits."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from conformance.exceptions import LEFT_OUT, UNINITIALISED, VARIES
from support import compare
from support import device as under_test
from support.moving import Mover, NotStrided

SAMPLES = 4  # of each dtype: a policy does not depend on shapes
OPS = [op for op in op_db if op.name not in LEFT_OUT | VARIES and torch.float32 in op.supported_dtypes("cpu")]


def run(op: OpInfo, sample: Any, device: str, dtype: torch.dtype) -> tuple[Any, Exception | None]:
    first, args, kwargs = Mover(device)((sample.input, sample.args, sample.kwargs))
    try:
        with torch.autocast(device, dtype):
            return op(first, *args, **kwargs), None
    except NotStrided:
        raise
    except Exception as error:
        return None, error


@pytest.mark.parametrize("low", (torch.bfloat16, torch.float16), ids=str)
def test_policy(low: torch.dtype) -> None:
    failures, count = [], 0
    for op in OPS:
        for dtype in (torch.float32, low):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for index, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    state = torch.random.default_generator.get_state()
                    try:
                        want, refused = run(op, sample, "cpu", low)
                        got, error = run(op, sample, under_test.NAME, low)
                    except NotStrided:
                        continue
                    random = not torch.equal(state, torch.random.default_generator.get_state())
                count += 1
                title = f"{op.formatted_name} {dtype} sample {index}"
                if type(refused) is not type(error):
                    failures.append(f"{title}: raises {str(error)[:200]!r}, the CPU {str(refused)[:200]!r}")
                elif refused is None:
                    values = op.name not in UNINITIALISED and not random
                    found = compare.differences(want, got, values=values)
                    if found:
                        failures.append(f"{title}: {'; '.join(found)[:200]}")
    assert not failures, f"{len(failures)} of {count}\n" + "\n".join(failures[:40])
