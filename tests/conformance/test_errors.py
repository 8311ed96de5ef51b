"""What an operator must refuse, it refuses on the device with the CPU's exception and words, when it is called."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from support import device as under_test
from support.moving import Mover, NotStrided

OPS = [op for op in op_db if op.error_inputs_func is not None]

# What these refuse stands in a tensor's values, or in a number, which is an input of the graph too: a lazy device sees
# it when the graph runs.
DEPENDS_ON_DATA = {"gather", "scatter", "scatter_add", "multinomial", "masked_fill"}


def raised(op: OpInfo, sample: Any, device: str) -> tuple[BaseException | None, str]:
    """What the call raised, and whether while recording or when it ran."""
    first, args, kwargs = Mover(device)((sample.input, sample.args, sample.kwargs))
    try:
        op(first, *args, **kwargs)
    except Exception as error:
        return error, "call"
    try:
        under_test.sync()
    except Exception as error:
        return error, "run"
    return None, ""


def words(error: BaseException | None) -> str:
    text = re.sub(rf"{under_test.NAME}(:0)?|cpu|CPU", "device", str(error))
    return " ".join(re.sub(r" \(while running aten::.*\)$", "", text, flags=re.S).split())


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.formatted_name)
def test_error_inputs(op: OpInfo) -> None:
    failures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for index, case in enumerate(op.error_inputs("cpu")):
            try:
                want, _ = raised(op, case.sample_input, "cpu")
                got, when = raised(op, case.sample_input, under_test.NAME)
            except NotStrided:
                continue
            if want is None:
                continue
            if type(got) is not type(want):
                failures.append(
                    f"{index}: {type(got).__name__}: {words(got)} instead of {type(want).__name__}: {words(want)}"
                )
            elif words(got) != words(want):
                failures.append(f"{index}: says\n    {words(got)}\n  instead of\n    {words(want)}")
            elif when == "run" and op.name not in DEPENDS_ON_DATA:
                failures.append(f"{index}: raised only when it ran: {words(got)}")
    assert not failures, "\n".join(failures)[:3000]
    x = torch.ones(2, device=under_test.NAME)
    assert (x + x).tolist() == [2, 2]
