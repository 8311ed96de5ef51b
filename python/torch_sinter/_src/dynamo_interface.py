"""The device as torch._dynamo wants it described, made from its base class: this file imports without Dynamo."""

from __future__ import annotations

from typing import Any

import torch

from torch_sinter._src import device_module as sinter


def make_interface(base: Any) -> Any:
    """A torch._dynamo.device_interface.DeviceInterface subclass for the device."""

    class SinterInterface(base):
        device = sinter.device
        Event = torch.Event
        Stream = torch.Stream

        class Worker:
            @staticmethod
            def set_device(device: int) -> None:
                sinter.set_device(device)

            @staticmethod
            def current_device() -> int:
                return sinter.current_device()

            @staticmethod
            def get_device_properties(device: Any = None) -> sinter.DeviceProperties:
                return sinter.get_device_properties(device)

        current_device = staticmethod(sinter.current_device)
        set_device = staticmethod(sinter.set_device)
        device_count = staticmethod(sinter.device_count)
        exchange_device = staticmethod(sinter._exchange_device)
        maybe_exchange_device = staticmethod(sinter._maybe_exchange_device)
        is_available = staticmethod(sinter.is_available)
        stream = staticmethod(sinter.stream)
        current_stream = staticmethod(sinter.current_stream)
        set_stream = staticmethod(sinter.set_stream)
        synchronize = staticmethod(sinter.synchronize)
        memory_allocated = staticmethod(sinter.memory_allocated)
        is_bf16_supported = staticmethod(sinter.is_bf16_supported)

        @staticmethod
        def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
            sinter.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return 0

        @staticmethod
        def get_compute_capability(device: Any = None) -> int:
            return 0

    return SinterInterface
