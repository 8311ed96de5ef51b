"""Printing a tensor of the device reads it once.

torch._tensor_str formats element by element, with a slice and an item() each, and copies a tensor to the CPU first
only for device types in a literal list. The device suffix is made before our replacement runs, so `device='sinter:0'`
stays in the text. It can go when that list asks the backend.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import _tensor_str

from torch_sinter._src import runtime


def install() -> None:
    original = _tensor_str._tensor_str

    @functools.wraps(original)
    def tensor_str(self: torch.Tensor, indent: int) -> Any:
        if self.device.type == runtime.NAME and not torch._C._functorch.is_functorch_wrapped_tensor(self):
            self = self.cpu()
        return original(self, indent)

    _tensor_str._tensor_str = tensor_str
