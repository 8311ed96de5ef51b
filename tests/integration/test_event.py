"""Events mark places in the queue."""

from __future__ import annotations

import pytest
import torch


def test_event_is_a_torch_event_of_the_device(device: str) -> None:
    event = torch.sinter.Event()
    assert isinstance(event, torch.Event) and isinstance(event, torch.sinter.Event) and event.device.type == device
    assert event.query()
    event.synchronize()


def test_recorded_event_waits_for_what_came_before(device: str) -> None:
    x = torch.ones(100, device=device)
    y = (x + 1).sum()
    event = torch.sinter.Event()
    event.record()
    event.synchronize()
    assert event.query()
    assert y.item() == 200.0


def test_elapsed_time_is_that_of_the_work_between(device: str) -> None:
    first, second = (torch.sinter.Event(enable_timing=True) for _ in range(2))
    x = torch.rand(600, 600, device=device)
    first.record()
    for _ in range(10):
        x = x @ x / 300
    second.record()
    second.synchronize()
    small = first.elapsed_time(second)
    third = torch.sinter.Event(enable_timing=True)
    third.record()
    third.synchronize()
    assert small > second.elapsed_time(third) >= 0


def test_elapsed_time_needs_recorded_events() -> None:
    first, second = (torch.sinter.Event(enable_timing=True) for _ in range(2))
    first.record()
    with pytest.raises(ValueError, match="recorded"):
        first.elapsed_time(second)


def test_streams_and_events_wait_for_each_other(device: str) -> None:
    stream = torch.sinter.Stream()
    event = stream.record_event()
    torch.sinter.current_stream().wait_event(event)
    event.wait(stream)
    assert event.query()
