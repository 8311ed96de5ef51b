"""safetensors.torch.load_file(device="sinter") and load_model(device="sinter").

safetensors reads into the devices of a list compiled into it. It reads for the CPU, and the tensors are moved: one
copy, as for every device that is not a CPU. It can go when that list asks torch.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torch_sinter._src import runtime
from torch_sinter._src.hooks.on_import import on_import


def _is_ours(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == runtime.NAME
    return isinstance(device, str) and device.split(":")[0] == runtime.NAME


def _patch(module: Any) -> None:
    load_file, load_model = module.load_file, module.load_model

    @functools.wraps(load_file)
    def load_file_anywhere(filename: Any, device: Any = "cpu", *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        if not _is_ours(device):
            return load_file(filename, device, *args, **kwargs)
        return {name: tensor.to(device) for name, tensor in load_file(filename, "cpu", *args, **kwargs).items()}

    @functools.wraps(load_model)
    def load_model_anywhere(model: Any, filename: Any, strict: bool = True, device: Any = "cpu", **kwargs: Any) -> Any:
        # The model's own parameters say where they live; the argument is where the file is read to.
        return load_model(model, filename, strict, "cpu" if _is_ours(device) else device, **kwargs)

    module.load_file = load_file_anywhere
    module.load_model = load_model_anywhere


def install() -> None:
    on_import("safetensors.torch", _patch)
