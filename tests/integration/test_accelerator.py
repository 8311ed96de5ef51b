"""torch.accelerator, once the device is in use."""

from __future__ import annotations

import torch

from support import scripts


def test_it_is_ours(device: str) -> None:
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator() == torch.device(device)
    assert accelerator.current_accelerator(check_available=True) == torch.device(device)
    assert accelerator.device_count() == 1 and accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    with accelerator.device_index(0):
        assert torch.get_device_module() is torch.sinter


def test_synchronize_runs_what_is_pending(device: str) -> None:
    x = torch.ones(3, device=device) + 1
    torch.accelerator.synchronize()
    assert x.tolist() == [2.0] * 3


def test_streams() -> None:
    stream = torch.Stream()
    assert stream.device.type == "sinter"
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    try:
        assert torch.accelerator.current_stream() == stream
    finally:
        torch.accelerator.set_stream(before)


def test_memory(device: str) -> None:
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    x = torch.empty(1 << 20, device=device).fill_(1)
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() - before >= 4 << 20
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == torch.accelerator.memory_allocated()
    del x
    torch.accelerator.empty_cache()
    torch.accelerator.empty_host_cache()
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


def test_capability() -> None:
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_the_functions_of_torch_are_back_in_place() -> None:
    outcome = scripts.run(
        """
        import torch
        before = torch._C._accelerator_getAccelerator, torch._C._get_accelerator, torch.autograd._supported_activities
        torch.ones(1, device="sinter")
        after = torch._C._accelerator_getAccelerator, torch._C._get_accelerator, torch.autograd._supported_activities
        print([type(f).__name__ for f in before], [type(f).__name__ for f in after])
        """
    )
    assert outcome.lines == [f"{['function'] * 3} {['builtin_function_or_method'] * 3}"]
