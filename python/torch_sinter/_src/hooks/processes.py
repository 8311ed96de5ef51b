"""Tensors of the device go through multiprocessing's queues and arguments, as copies.

torch passes CPU tensors between processes as shared memory and CUDA tensors by handle; for other devices it fails with
"_share_fd_: only available on CPU". Ours travel as bytes. (A CPU copy in shared memory would save a pass over them, but
torch keeps such memory alive only as long as the sender holds the tensor, and nobody would hold the copy.) It can go
when torch lets a backend register a reduction.
"""

from __future__ import annotations

import io
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from torch_sinter._src import runtime


def _rebuild(kind: type, data: bytes, requires_grad: bool) -> torch.Tensor:
    tensor = torch.load(io.BytesIO(data), map_location=runtime.NAME, weights_only=True)
    if issubclass(kind, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _reduce(tensor: torch.Tensor) -> Any:
    if tensor.device.type != runtime.NAME:
        return reductions.reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        # torch's own words for tensors of its devices.
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries. If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    data = io.BytesIO()
    # A clone holds the tensor's own elements; a view would bring its whole storage.
    torch.save(tensor.detach().clone(), data)
    return _rebuild, (type(tensor), data.getvalue(), tensor.requires_grad)


def install() -> None:
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce)
