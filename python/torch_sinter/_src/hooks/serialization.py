"""Saved tensors say "cpu", so that a checkpoint loads on any machine (docs/decisions tells why).

torch.save writes the name of the device beside each storage, and torch.load fails where no package answers to that
name.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_sinter._src import runtime

# Before torch's own entry for PrivateUse1 devices, which is 23. Two entries of one priority make register_package fail.
_PRIORITY = 22.5


def _tag(storage: Any) -> str | None:
    return "cpu" if storage.device.type == runtime.NAME else None


def _no_deserializer(storage: Any, location: str) -> None:
    # map_location="sinter" is served by torch's own entry for PrivateUse1 devices.
    return None


def install() -> None:
    torch.serialization.register_package(_PRIORITY, _tag, _no_deserializer)  # type: ignore[arg-type]
