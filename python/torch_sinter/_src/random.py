"""The device's random numbers, in the words of torch.cuda.

The generator is a seed and an offset, both known on the host: none of these functions waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from torch_sinter._src import runtime
from torch_sinter_autoload import registration


def _generator() -> torch.Generator:
    return runtime.call("_default_generator")


class _DefaultGenerators(Sequence[torch.Generator]):
    """`torch.sinter.default_generators`: a tuple of one that loads the library when it is looked into, not before."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        return (_generator(),)[index]

    def __iter__(self) -> Iterator[torch.Generator]:
        return iter((_generator(),))


default_generators = _DefaultGenerators()


def manual_seed_all(seed: int) -> None:
    """Seed the device. Before the first use the seed is kept, so that torch.manual_seed loads nothing."""
    if runtime.is_loaded():
        _generator().manual_seed(int(seed))
    else:
        registration.pending_seed = int(seed)


manual_seed = manual_seed_all


def seed() -> int:
    """Seed the device with a number from the system, and return it."""
    return _generator().seed()


def seed_all() -> None:
    seed()


def initial_seed() -> int:
    return _generator().initial_seed()


def get_rng_state(device: int | str | torch.device = runtime.NAME) -> torch.Tensor:
    """Seed and offset, as CUDA lays them out: 16 bytes, in a CPU tensor."""
    return _generator().get_state()


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device = runtime.NAME) -> None:
    _generator().set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for state in new_states:
        set_rng_state(state)
