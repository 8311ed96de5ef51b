"""DLPack and numpy: other libraries see host memory, torch sees the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from support import device as under_test


def test_numpy_reads_a_pending_tensor_without_a_copy(device: str) -> None:
    x = torch.arange(4.0, device=device) + 1
    view = np.from_dlpack(x)
    assert view.tolist() == [1.0, 2.0, 3.0, 4.0]
    x.mul_(10)
    torch.sinter.synchronize()
    assert view.tolist() == [10.0, 20.0, 30.0, 40.0]


def test_each_later_write_is_seen_outside(device: str) -> None:
    """The memory is known outside, so a write is done when the call returns."""
    x = torch.zeros(3, device=device)
    view = np.from_dlpack(x)
    for step in range(1, 4):
        x.add_(1)
        assert view.tolist() == [float(step)] * 3


def test_a_write_from_outside_is_seen_on_the_device(device: str) -> None:
    x = torch.zeros(3, device=device)
    other = torch.utils.dlpack.from_dlpack(x.__dlpack__())
    assert other.device.type == "cpu"
    other.fill_(5)
    assert (x + 1).tolist() == [6.0] * 3


def test_torch_to_torch_stays_on_the_device(device: str) -> None:
    x = torch.arange(4.0, device=device)
    y = torch.from_dlpack(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr()
    y.add_(1)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert torch.utils.dlpack.from_dlpack(x).device == x.device
    assert torch.from_dlpack(x, device="cpu").device.type == "cpu"


def test_an_address_stays_true(device: str) -> None:
    import ctypes

    x = torch.zeros(3, device=device, requires_grad=True)
    memory = (ctypes.c_float * 3).from_address(x.data_ptr())
    with torch.no_grad():
        x.add_(2)
    assert list(memory) == [2.0] * 3
    assert x.data_ptr() == ctypes.addressof(memory) and x[1:].data_ptr() == x.data_ptr() + 4


def test_the_address_of_a_storage_marks_nothing(device: str) -> None:
    """It is what tied tensors are recognised by; training must not get slower for it."""
    x = torch.zeros(3, device=device)
    assert x.untyped_storage().data_ptr() == x[1:].untyped_storage().data_ptr()
    _, counts = under_test.counted(lambda: x.add_(1), "graphs_ended", "syncs")
    assert counts == {"graphs_ended": 0, "syncs": 0}


def test_fake_tensors_have_no_address(device: str) -> None:
    with torch._subclasses.FakeTensorMode():
        x = torch.ones(2, device=device)
        try:
            assert x.data_ptr() == 0
        except RuntimeError as error:
            assert "data" in str(error)


def test_the_protocol(device: str) -> None:
    x = torch.ones(2, 3, device=device)
    assert tuple(x.__dlpack_device__()) == (torch.utils.dlpack.DLDeviceType.kDLCPU, 0)
    assert tuple(torch.ones(1).__dlpack_device__()) == (torch.utils.dlpack.DLDeviceType.kDLCPU, 0)
    assert np.from_dlpack(x.T).shape == (3, 2)
    assert torch.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    assert torch.from_dlpack(torch.arange(3)).device.type == "cpu"


def test_what_cannot_be_exported_says_so(device: str) -> None:
    with pytest.raises(BufferError, match="require"):
        torch.ones(2, device=device, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="conj"):
        torch.ones(2, device=device, dtype=torch.complex64).conj().__dlpack__()


def test_views_and_offsets(device: str) -> None:
    x = torch.arange(10.0, device=device)[3:8:2]
    assert np.from_dlpack(x).tolist() == [3.0, 5.0, 7.0]


def test_numpy_array_of_a_tensor(device: str) -> None:
    x = torch.arange(3.0, device=device) + 1
    with pytest.raises(TypeError, match=r"sinter.*numpy"):
        x.numpy()
    with pytest.raises(TypeError, match="numpy"):
        np.asarray(x)
    assert x.cpu().numpy().tolist() == x.numpy(force=True).tolist() == [1.0, 2.0, 3.0]
