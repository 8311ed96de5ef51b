"""DataLoader: workers and pinning beside a device that is in use."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from support import scripts


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_arrive(workers: int, pin_memory: bool, device: str) -> None:
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    pending = torch.ones(2, device=device) * 3
    total = torch.zeros(2, device=device)
    for x, y in DataLoader(data, 2, num_workers=workers, pin_memory=pin_memory):
        assert x.is_pinned() == pin_memory == y.is_pinned()
        total += (x.to(device, non_blocking=True) * pending).sum(0)
    assert total.tolist() == [90.0, 108.0]


def test_workers_can_be_spawned() -> None:
    outcome = scripts.run(
        """
        import torch
        from torch.utils.data import DataLoader
        if __name__ == "__main__":
            x = torch.ones(2, device="sinter") + 1
            for batch in DataLoader(torch.arange(4.0), 2, num_workers=1, multiprocessing_context="spawn"):
                x += batch.to("sinter")
            print(x.tolist())
        """
    )
    assert outcome.lines == ["[4.0, 6.0]"]


class OnDevice(torch.utils.data.Dataset):
    """A dataset that computes on the device, in the worker process."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.base = torch.arange(4.0, device=device) * 2

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return (self.base[index] + 1).cpu()


def test_workers_may_use_the_device(device: str) -> None:
    got = [batch.tolist() for batch in DataLoader(OnDevice(device), 2, num_workers=1)]
    assert got == [[1.0, 3.0], [5.0, 7.0]]


class StaysOnDevice(OnDevice):
    def __getitem__(self, index: int) -> torch.Tensor:
        return self.base[index] + 1


def test_workers_may_return_tensors_of_the_device(device: str) -> None:
    batches = list(DataLoader(StaysOnDevice(device), 2, num_workers=1))
    assert {batch.device.type for batch in batches} == {device}
    assert [batch.tolist() for batch in batches] == [[1.0, 3.0], [5.0, 7.0]]


def test_datasets_on_the_device_without_workers(device: str) -> None:
    data = torch.arange(4.0, device=device)
    assert [batch.tolist() for batch in DataLoader(data, 2)] == [[0.0, 1.0], [2.0, 3.0]]
