"""DLPack: to other libraries our tensors are host memory, to torch they stay what they are.

Tensor.__dlpack_device__ compares the device's type with the literal "privateuse1", so it fails for a renamed backend.
Handing out an address runs what is pending and marks the buffer as exported (torch.ops.sinter._host_view).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.utils.dlpack

from torch_sinter._src import runtime


def _is_ours(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.device.type == runtime.NAME


def _host_view(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    return torch.ops.sinter._host_view(tensor)


def install() -> None:
    export = torch.Tensor.__dlpack__
    export_device = torch.Tensor.__dlpack_device__
    import_ = torch.utils.dlpack.from_dlpack

    @functools.wraps(export)
    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:
        return export(_host_view(self) if _is_ours(self) else self, **kwargs)

    @functools.wraps(export_device)
    def __dlpack_device__(self: torch.Tensor) -> Any:
        return (torch.utils.dlpack.DLDeviceType.kDLCPU, 0) if _is_ours(self) else export_device(self)

    @functools.wraps(import_)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: Any = None) -> torch.Tensor:
        if _is_ours(ext_tensor) and (device is None or torch.device(device).type == runtime.NAME):
            alias = ext_tensor.detach()
            return alias.clone() if copy else alias
        return import_(ext_tensor, device=device, copy=copy)

    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    torch.utils.dlpack.from_dlpack = from_dlpack
    torch.from_dlpack = from_dlpack
