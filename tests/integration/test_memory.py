"""Memory statistics, the limit, and giving memory back."""

from __future__ import annotations

import gc

import torch

import torch_sinter
from support import scripts

MIB = 1 << 20


def test_allocated_follows_tensors(device: str) -> None:
    torch.sinter.synchronize()
    before = torch_sinter.memory_allocated()
    x = torch.ones(MIB, device=device)
    torch.sinter.synchronize()
    assert 4 * MIB <= torch_sinter.memory_allocated() - before < 4.1 * MIB
    y = x[10:]
    del x
    assert torch_sinter.memory_allocated() - before >= 4 * MIB
    del y
    assert torch_sinter.memory_allocated() - before < MIB


def test_peak_and_reset(device: str) -> None:
    torch.sinter.synchronize()
    torch_sinter.reset_peak_memory_stats()
    before = torch_sinter.max_memory_allocated()
    (torch.ones(MIB, device=device) + 1).sum().item()
    assert torch_sinter.max_memory_allocated() - before >= 4 * MIB
    gc.collect()
    torch_sinter.reset_peak_memory_stats()
    assert torch_sinter.max_memory_allocated() == torch_sinter.memory_allocated()


def test_cache_is_kept_and_given_back(device: str) -> None:
    torch_sinter.empty_cache()
    x = torch.ones(8 * MIB, device=device)
    torch.sinter.synchronize()
    del x
    kept = torch.sinter.memory_reserved()
    torch_sinter.empty_cache()
    assert kept - torch.sinter.memory_reserved() >= 32 * MIB


def test_names_of_cuda(device: str) -> None:
    x = torch.ones(MIB, device=device)  # noqa: F841
    torch.sinter.synchronize()
    stats = torch.sinter.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.sinter.memory_allocated()
    assert stats["allocated_bytes.all.peak"] == torch.sinter.max_memory_allocated()
    assert stats["reserved_bytes.all.current"] == torch.sinter.memory_reserved()
    assert "allocated" in torch.sinter.memory_summary()


def test_the_limit_is_an_out_of_memory_error() -> None:
    outcome = scripts.run(
        """
        import torch, torch_sinter
        kept = torch.ones(1 << 20, device="sinter")
        torch.sinter.synchronize()
        try:
            x = torch.ones(64 << 20, device="sinter")
            torch.sinter.synchronize()
        except torch.OutOfMemoryError as error:
            print(type(error).__name__, error)
        x = None
        print(kept.sum().item(), torch.sinter.mem_get_info()[1])
        """,
        SINTER_MEMORY_LIMIT="64M",
    )
    assert outcome.lines[0].startswith("OutOfMemoryError") and "SINTER_MEMORY_LIMIT" in outcome.stdout
    assert outcome.lines[-1] == f"{float(MIB)} {64 * MIB}"


def test_asking_before_the_first_use_says_zero() -> None:
    outcome = scripts.run("import torch; print(torch.sinter.memory_allocated(), torch.sinter.memory_stats())")
    assert outcome.stdout.startswith("0 {")


def test_a_loop_does_not_grow(device: str) -> None:
    x = torch.ones(1000, device=device)
    levels = set()
    for _ in range(50):
        x = (x * 1.0).sin()
        x.sum().item()
        levels.add(torch_sinter.memory_allocated())
    assert len(levels) <= 3


def test_storage_can_be_resized(device: str) -> None:
    x = torch.arange(10.0, device=device)
    x.untyped_storage().resize_(80)
    assert x.tolist() == list(map(float, range(10)))
    before = torch_sinter.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch_sinter.memory_allocated() < before
