"""An optimizer step ends the open graph, so that a plain training loop needs no barrier call.

torch calls global post-step hooks for each subclass of torch.optim.Optimizer, those that override step() too. Other
optimizers are covered by the recorder's bounds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_sinter._src import runtime

CAUSE = "optimizer step"

_end_graph: Any = None


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    # A step that Dynamo traces becomes part of a program; there is no graph to end when it is traced.
    if torch.compiler.is_compiling():
        return
    for group in optimizer.param_groups:
        parameters = group["params"]
        # The first parameter speaks for its group. A group over several devices is rare; the bounds cover it.
        if parameters and parameters[0].device.type == runtime.NAME:
            _end_graph(CAUSE)
            return


def install() -> None:
    global _end_graph
    # The overload itself: going through the packet costs a microsecond more at each step.
    _end_graph = torch.ops.sinter._end_graph.default
    register_optimizer_step_post_hook(_after_step)
