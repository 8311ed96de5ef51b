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


# Whose step is running (its id: this must keep no optimizer alive), for how many parameters it had state before, and
# copies of host state that is more than a count of steps.
_running: tuple[int, int, list[tuple[torch.Tensor, torch.Tensor]]] = (0, 0, [])


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    global _running
    if not torch.compiler.is_compiling():
        _running = (id(optimizer), len(optimizer.state), _host_state(optimizer))


def _host_state(optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Such as NAdam's product of momenta. The first parameter's state tells which there are: for most, none."""
    for first in optimizer.state.values():
        names = [
            name
            for name, value in first.items()
            if name != "step" and isinstance(value, torch.Tensor) and value.device.type == "cpu"
        ]
        break
    else:
        return []
    if not names:
        return []
    found = (state[name] for state in optimizer.state.values() for name in names if name in state)
    return [(value, value.clone()) for value in found]


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
                _undo(optimizer)
                raise
            return


def _undo(optimizer: torch.optim.Optimizer) -> None:
    """Take back what a failed step did on the host.

    On the CPU the error would have come before the step, which would not have run. What existed on the device has kept
    its contents, as the weights have. State that the step made goes, such as momentum copied from gradients that never
    came; steps counted on the host are counted back.
    """
    owner, count, host_state = _running
    if owner != id(optimizer):
        return
    for value, before in host_state:
        value.copy_(before)
    for parameter in list(optimizer.state)[count:]:
        del optimizer.state[parameter]
    for parameter, state in optimizer.state.items():
        step = state.get("step") if getattr(parameter, "grad", None) is not None else None
        if isinstance(step, torch.Tensor):
            if step.device.type == "cpu":
                step -= 1
        elif isinstance(step, (int, float)):
            state["step"] = step - 1


def install() -> None:
    global _end_graph
    # The overload itself: going through the packet costs a microsecond more at each step.
    _end_graph = torch.ops.sinter._end_graph.default
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
