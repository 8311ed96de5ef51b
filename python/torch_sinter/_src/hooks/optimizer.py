"""An optimizer step ends the open graph, so that a plain training loop needs no barrier call.

torch calls global post-step hooks for each subclass of torch.optim.Optimizer, those that override step() too. Other
optimizers are covered by the recorder's bounds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torch_sinter._src import runtime

CAUSE = "optimizer step"

_end_graph: Any = None


# Whose step is running (its id: this must keep no optimizer alive), and for how many parameters it had state before.
_running: tuple[int, int] = (0, 0)


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    global _running
    if not torch.compiler.is_compiling():
        _running = (id(optimizer), len(optimizer.state))


def _after_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    # A step that Dynamo traces becomes part of a program; there is no graph to end when it is traced.
    if torch.compiler.is_compiling():
        return
    for group in optimizer.param_groups:
        parameters = group["params"]
        # The first parameter speaks for its group. A group over several devices is rare; the bounds cover it.
        if parameters and parameters[0].device.type == runtime.NAME:
            try:
                _end_graph(CAUSE)
            except Exception:
                _forget_new_state(optimizer)
                raise
            return


def _forget_new_state(optimizer: torch.optim.Optimizer) -> None:
    """Drop the state that a failed step made, such as momentum copied from gradients that never came.

    On the CPU the error would have come before the step, which would not have run. What existed before the step has
    kept its contents, as the weights have.
    """
    owner, count = _running
    if owner == id(optimizer):
        for parameter in list(optimizer.state)[count:]:
            del optimizer.state[parameter]


def install() -> None:
    global _end_graph
    # The overload itself: going through the packet costs a microsecond more at each step.
    _end_graph = torch.ops.sinter._end_graph.default
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
