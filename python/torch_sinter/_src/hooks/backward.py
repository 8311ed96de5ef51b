"""Backward runs on the thread that calls it, as for CPU tensors.

The autograd engine hands nodes of any other device to a thread of its own, and only to those that it started with its
first backward in the process (runtime.prime_autograd). Staying on the calling thread also means one OpenMP pool
instead of two, and that a forked child can train. It can go when the engine runs host-memory devices on the caller.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Variable

from torch_sinter._src.hooks.on_import import on_import

# What torch itself puts there.
_Engine: Any = type(Variable._execution_engine)


class _CallerThreadEngine(_Engine):
    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        if not torch._C._is_multithreading_enabled():
            return super().run_backward(*args, **kwargs)
        torch._C._set_multithreading_enabled(False)
        try:
            return super().run_backward(*args, **kwargs)
        finally:
            torch._C._set_multithreading_enabled(True)


def install() -> None:
    # Dynamo follows calls out of torch's own files; there is nothing to compile in this one.
    on_import("torch._dynamo.eval_frame", lambda module: module.skip_code(_CallerThreadEngine.run_backward.__code__))
    Variable._execution_engine = _CallerThreadEngine()
