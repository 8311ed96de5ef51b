"""Views are names for memory: never recorded, and what is written through one is read through each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from support import compare
from support import device as under_test
from support.device import counted

pytestmark = pytest.mark.lazy

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "view": lambda x: x.view(24),
    "view of bits": lambda x: x.view(torch.int32),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "select": lambda x: x[1],
    "slice": lambda x: x[..., ::2],
    "expand": lambda x: x[:, :1].expand(2, 7, 4),
    "as_strided": lambda x: x.as_strided((2, 3), (1, 2), 5),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "split": lambda x: x.split(1)[1],
    "chunk": lambda x: x.chunk(2, 2)[1],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "pairs": lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)),
    "flatten": lambda x: x.flatten(1),
    "movedim": lambda x: x.movedim(0, 1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_are_not_recorded(view) -> None:
    """The same storage under other sizes, strides, offset and dtype, whether its contents are ready or pending."""
    host = torch.arange(24.0).reshape(2, 3, 4)
    x = host.to(under_test.NAME)
    under_test.sync()
    for _ in ("ready", "pending"):
        seen, rose = counted(lambda: view(x), "ops_recorded", "ops_run_now", "graphs_ended", "syncs")
        assert not any(rose.values()), rose
        assert seen.untyped_storage()._cdata == x.untyped_storage()._cdata
        assert not compare.differences(view(host), seen)
        x.add_(1)
        host.add_(1)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_what_is_written_through_one_name_is_read_through_each(view) -> None:
    """Of the base, of a view made before and of one made after, all in one graph and in its order."""

    def course(device: str) -> list[torch.Tensor]:
        x = torch.arange(24.0, device=device).reshape(2, 3, 4)
        before, rows = view(x), x[1:]
        results = [before * 1]
        x.add_(100)
        results.append(before * 1)
        rows.mul_(2)  # a part of the memory
        results += [before * 1, x * 1]
        if not any(s == 0 for s in before.stride()):
            view(x).mul_(3)
        results += [before * 1, rows * 1, view(x) * 1]
        x.zero_()
        return [*results, before * 1]

    (want, got), rose = counted(lambda: (course("cpu"), course(under_test.NAME)), "graphs_ended")
    assert rose["graphs_ended"] == 0
    assert not compare.differences(want, got)


def test_writes_through_overlapping_strides() -> None:
    """Elements that share an address are written one after the other, as the CPU does it."""

    def course(device: str) -> list[torch.Tensor]:
        x = torch.zeros(4, device=device)
        windows = x.as_strided((3, 2), (1, 1))
        before = x * 1
        windows.copy_(torch.arange(6.0, device=device).view(3, 2))
        copied = x * 1
        windows.add_(1)
        added = windows * 1
        windows.mul_(windows.clone())
        return [before, copied, added, x]

    assert not compare.differences(course("cpu"), course(under_test.NAME))
