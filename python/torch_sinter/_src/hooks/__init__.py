"""What the first use of the device changes in torch's Python, one file a change, all listed here.

Each is a gap in PyTorch's interface for out-of-tree devices: a list that cannot be added to, or a name compared with
a literal. A file says which gap it fills and how to tell that it can go. None of them runs in a process that does not
use the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch_sinter._src.hooks import (
    backward,
    distributed,
    dynamo,
    exit_report,
    exports,
    linear_cross_entropy,
    optimizer,
    printing,
    processes,
    safetensors,
    serialization,
)


class Hook(NamedTuple):
    name: str
    purpose: str
    install: Callable[[], None]


HOOKS = (
    Hook("backward", "backward runs on the thread that called it", backward.install),
    Hook("optimizer", "an optimizer step ends the graph", optimizer.install),
    Hook("printing", "printing a tensor reads it once", printing.install),
    Hook("exports", "addresses and DLPack capsules handed out stay true", exports.install),
    Hook("serialization", "checkpoints load where this package is not installed", serialization.install),
    Hook("processes", "multiprocessing carries tensors of the device", processes.install),
    Hook("safetensors", "load_file and load_model take the device", safetensors.install),
    Hook("linear_cross_entropy", "16-bit policy as on the CPU", linear_cross_entropy.install),
    Hook("distributed", "init_process_group() finds a backend for the device", distributed.install),
    Hook("dynamo", "torch.compile knows the device", dynamo.install),
    Hook("exit_report", "SINTER_REPORT=1 prints a line at exit", exit_report.install),
)

_installed: set[str] = set()


def install() -> None:
    for hook in HOOKS:
        if hook.name not in _installed:
            hook.install()
            _installed.add(hook.name)
