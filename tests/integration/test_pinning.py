"""Pinned memory: any host memory is as good, but who asks for it must see it."""

from __future__ import annotations

import torch


def test_pin_memory_is_remembered(device: str) -> None:
    x = torch.arange(5.0)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    assert pinned.device.type == "cpu" and torch.equal(pinned, x)
    assert pinned.pin_memory() is pinned
    assert pinned[2:].is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.empty(0).pin_memory().numel() == 0


def test_copies_from_pinned_memory_are_snapshots(device: str) -> None:
    pinned = torch.ones(1000).pin_memory()
    x = pinned.to(device, non_blocking=True)
    pinned.fill_(7)
    assert x.unique().tolist() == [1.0]
    y = x * 2
    back = torch.empty(1000, pin_memory=True)
    back.copy_(y, non_blocking=True)
    torch.sinter.synchronize()
    assert back.unique().tolist() == [2.0]


def test_tensors_of_the_device_are_not_pinned(device: str) -> None:
    assert not torch.ones(2, device=device).is_pinned()


def test_host_cache_can_be_emptied() -> None:
    torch.ones(100).pin_memory()
    torch.accelerator.empty_host_cache()
