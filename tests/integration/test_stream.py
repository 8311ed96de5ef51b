"""Streams are names for one queue that runs in order."""

from __future__ import annotations

import torch


def test_streams_are_torch_streams_of_the_device(device: str) -> None:
    stream = torch.sinter.Stream()
    assert isinstance(stream, torch.Stream) and stream.device == torch.device(device, 0)
    assert stream != torch.sinter.Stream()
    assert torch.Stream(device).device.type == device


def test_selecting_a_stream_and_returning() -> None:
    before = torch.sinter.current_stream()
    stream = torch.sinter.Stream()
    with torch.sinter.stream(stream) as entered:
        assert entered == stream == torch.sinter.current_stream() == torch.accelerator.current_stream()
        with torch.sinter.stream(None):
            assert torch.sinter.current_stream() == stream
        with torch.sinter.stream(torch.sinter.default_stream()):
            assert torch.sinter.current_stream() == torch.sinter.default_stream()
        assert torch.sinter.current_stream() == stream
    assert torch.sinter.current_stream() == before
    with stream:
        assert torch.sinter.current_stream() == stream
    assert torch.sinter.current_stream() == before


def test_work_of_two_streams_keeps_its_order(device: str) -> None:
    x = torch.zeros(1000, device=device)
    first, second = torch.sinter.Stream(), torch.sinter.Stream()
    with torch.sinter.stream(first):
        x.add_(1)
    with torch.sinter.stream(second):
        x.mul_(10)
    with torch.sinter.stream(first):
        x.add_(2)
    assert x.unique().tolist() == [12.0]


def test_synchronizing_runs_what_was_recorded(device: str) -> None:
    x = torch.ones(4, device=device)
    stream = torch.sinter.current_stream()
    y = x + 1
    stream.synchronize()
    assert stream.query()
    stream.wait_stream(torch.sinter.Stream())
    y.record_stream(stream)
    assert y.tolist() == [2.0] * 4


def test_each_thread_has_its_own_current_stream() -> None:
    import threading

    seen = []
    with torch.sinter.stream(torch.sinter.Stream()):
        thread = threading.Thread(target=lambda: seen.append(torch.sinter.current_stream()))
        thread.start()
        thread.join()
    assert seen == [torch.sinter.default_stream()]
