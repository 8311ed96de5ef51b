"""Addresses handed out: DLPack and data_ptr().

Who is given an address may read it at any time, without asking us. torch.ops.sinter._host_view runs what is pending
and marks the buffer as exported: it stays where it is, and each later write is done when the call returns. The
address of a storage is left alone: it is what programs compare to find tied tensors, and marking every weight would
slow training for good.

Through DLPack our tensors are host memory to other libraries, and what they are to torch. Tensor.__dlpack_device__
compares the device's type with the literal "privateuse1", so for a renamed backend it fails; that part can go when it
asks torch._C.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.utils.dlpack

from torch_sinter._src import runtime


def _is_ours(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.device.type == runtime.NAME


def _has_own_memory(tensor: torch.Tensor) -> bool:
    """Not a fake tensor, a wrapper, or anything seen through a dispatch mode: those answer for themselves."""
    return (
        type(tensor).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._C._len_torch_dispatch_stack()
    )


def _host_view(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if tensor.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set")
    return torch.ops.sinter._host_view(tensor)


def _install_data_ptr() -> None:
    original = torch.Tensor.data_ptr

    @functools.wraps(original)
    def data_ptr(self: torch.Tensor) -> int:
        if self.device.type == runtime.NAME and _has_own_memory(self):
            torch.ops.sinter._host_view(self.detach())
        return original(self)

    torch.Tensor.data_ptr = data_ptr  # type: ignore[method-assign,assignment]


def _install_dlpack() -> None:
    export = torch.Tensor.__dlpack__
    export_device = torch.Tensor.__dlpack_device__
    to_capsule = torch.utils.dlpack.to_dlpack
    import_ = torch.utils.dlpack.from_dlpack

    @functools.wraps(export)
    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:
        return export(_host_view(self) if _is_ours(self) else self, **kwargs)

    @functools.wraps(export_device)
    def __dlpack_device__(self: torch.Tensor) -> Any:
        return (torch.utils.dlpack.DLDeviceType.kDLCPU, 0) if _is_ours(self) else export_device(self)

    @functools.wraps(to_capsule)
    def to_dlpack(tensor: torch.Tensor) -> Any:
        return to_capsule(_host_view(tensor) if _is_ours(tensor) else tensor)

    @functools.wraps(import_)
    def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: Any = None) -> torch.Tensor:
        if _is_ours(ext_tensor) and (device is None or torch.device(device).type == runtime.NAME):
            alias = ext_tensor.detach()
            return alias.clone() if copy else alias
        return import_(ext_tensor, device=device, copy=copy)

    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    for module in (torch.utils.dlpack, torch):
        module.to_dlpack = to_dlpack  # type: ignore[attr-defined]
        module.from_dlpack = from_dlpack  # type: ignore[attr-defined]


def install() -> None:
    _install_data_ptr()
    _install_dlpack()
