"""Streams and events, in the words of torch.cuda.

All streams map onto the device's one queue, which runs in order; so they never race, and events mark places in the
queue.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_sinter._src import runtime

_DEVICE = f"{runtime.NAME}:0"


class Stream(torch.Stream):
    """A torch.Stream whose device is ours when none is given."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        runtime.initialize()
        if kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, device=_DEVICE if device is None else device, priority=priority)


class _EventType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == runtime.NAME


class Event(metaclass=_EventType):
    """A torch.Event whose device is ours. Not a subclass: torch.Event.elapsed_time takes exactly torch.Event."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:  # type: ignore[misc]
        runtime.initialize()
        return torch.Event(_DEVICE, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def _typed(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Any = None) -> Stream:
    runtime.initialize()
    return _typed(torch._C._accelerator_getStream(0))


def default_stream(device: Any = None) -> Stream:
    """The stream with the number 0, as on other devices."""
    return Stream(stream_id=0, device_index=0, device_type=int(torch._C._autograd.DeviceType.PrivateUse1))  # type: ignore[call-overload]


def set_stream(stream: torch.Stream | None) -> None:
    if stream is not None:
        runtime.initialize()
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Selects a stream; with None it does nothing, as in torch.cuda.StreamContext."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[Stream] = []

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self._previous.append(current_stream())
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            set_stream(self._previous.pop())


def stream(stream: torch.Stream | None) -> StreamContext:
    return StreamContext(stream)
