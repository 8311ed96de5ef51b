"""Buffers and time: addresses, snapshots, exports, order, what a read waits for."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import signal

import numpy as np
import pytest
import torch

import torch_sinter
from support import device as under_test
from support import process
from support.device import counted, counter

pytestmark = pytest.mark.lazy


def to(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(v.to(under_test.NAME) for v in values)


def pending() -> torch.Tensor:
    """[2, 3, 4, 5], not computed yet."""
    (x,) = to(torch.arange(4.0))
    return x + 2


# ---------------------------------------------------------------------------------------------- addresses


def test_pending_memory_has_an_address_and_reading_it_computes() -> None:
    y = pending()
    address = y.data_ptr()
    assert address != 0
    assert np.ctypeslib.as_array((__import__("ctypes").c_float * 4).from_address(address)).tolist() == [2, 3, 4, 5]


def test_storage_address_of_pending_memory() -> None:
    y = pending()
    assert y.untyped_storage().data_ptr() != 0
    assert y.tolist() == [2, 3, 4, 5]


def test_distinct_pending_tensors_do_not_look_tied() -> None:
    a, b = pending(), pending()
    assert a.data_ptr() != b.data_ptr()
    assert a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()
    safetensors = pytest.importorskip("safetensors.torch")
    assert safetensors._find_shared_tensors({"a": pending(), "b": pending()}) in ([], [{"a"}, {"b"}], [{"b"}, {"a"}])


def test_who_goes_round_the_hooks_faults_instead_of_reading_rubbish() -> None:
    """A pending storage carries an address of its own, to memory without access rights."""
    done = process.run(
        """
        import ctypes

        def raw_address(x):  # the third word of a storage, after its table of functions and its reference counts
            return (ctypes.c_uint64 * 3).from_address(x.untyped_storage()._cdata)[2]

        ready = torch.ones(4).to(D) + 2
        ready.tolist()
        assert raw_address(ready) == ready.untyped_storage().data_ptr()
        x, y = (ready + i for i in range(2))
        assert len({0, raw_address(x), raw_address(y)}) == 3
        print("reads", flush=True)
        ctypes.string_at(raw_address(x), 1)
        print("has read", flush=True)
        """
    )
    assert done.stdout.split("\n")[0] == "reads", done.stderr
    assert "has read" not in done.stdout
    assert done.returncode == -signal.SIGSEGV


def test_each_pending_write_arms_the_hook_again() -> None:
    """Asking a storage for its address computes what was written since it was asked last."""
    (x,) = to(torch.zeros(3))
    for step in range(1, 4):
        x.add_(1)
        memory = (ctypes.c_float * 3).from_address(x.untyped_storage().data_ptr())
        assert list(memory) == [step] * 3
        x.add_(1)
        assert x.untyped_storage().cpu().tolist() == list(bytes(np.full(3, step + 1, np.float32)))
        x.sub_(1)


def test_views_of_pending_memory_share_its_address() -> None:
    y = pending()
    v = y[1:]
    assert v.data_ptr() == y.data_ptr() + 4
    assert v.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


@pytest.mark.parametrize("size", (1, 3, 17, 1000))
def test_memory_is_aligned(size: int) -> None:
    """Bits of matrix products depend on it."""
    kept = [torch.ones(size).to(under_test.NAME) + i for i in range(5)]
    assert all(t.data_ptr() % 64 == 0 for t in kept)


def test_save_of_pending_memory(tmp_path) -> None:
    y = pending()
    torch.save({"y": y, "view": y[1:]}, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", map_location="cpu", weights_only=True)
    assert loaded["y"].tolist() == [2, 3, 4, 5]
    assert loaded["view"].tolist() == [3, 4, 5]
    assert loaded["view"].untyped_storage().data_ptr() == loaded["y"].untyped_storage().data_ptr()


@pytest.mark.parametrize("way", (copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t)), torch.clone))
def test_copies_of_pending_memory(way) -> None:
    assert way(pending()).tolist() == [2, 3, 4, 5]


def test_storage_of_pending_memory_to_the_cpu() -> None:
    storage = pending().untyped_storage().cpu()
    assert torch.empty(0).set_(storage).tolist() == [2, 3, 4, 5]


# ---------------------------------------------------------------------------------------------- snapshots of host memory


@pytest.mark.parametrize("options", ({}, {"non_blocking": True}, {"copy": True}))
def test_upload_takes_a_snapshot(options: dict[str, bool]) -> None:
    host = torch.arange(4.0)
    x = host.to(under_test.NAME, **options)
    y = x + 0
    host.fill_(-1)
    assert x.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("non_blocking", (False, True))
def test_copy_into_takes_a_snapshot(non_blocking: bool) -> None:
    """The usual loop: one device tensor, filled again from a host buffer that is filled again."""
    host, (x,) = torch.zeros(3), to(torch.zeros(3))
    seen = []
    for step in range(4):
        host.fill_(step)
        x.copy_(host, non_blocking=non_blocking)
        seen.append(x * 10)
    assert [t[0].item() for t in seen] == [0, 10, 20, 30]


def test_copy_into_is_an_operation_of_the_graph() -> None:
    (x,) = to(torch.zeros(3))
    under_test.sync()
    y = x + 1
    _, rose = counted(lambda: x.copy_(torch.ones(3)), "graphs_ended", "syncs")
    assert rose == {"graphs_ended": 0, "syncs": 0}
    assert (y.tolist(), x.tolist()) == ([1, 1, 1], [1, 1, 1])


def test_copy_with_other_layouts_and_dtypes() -> None:
    host = torch.arange(12, dtype=torch.int64).reshape(3, 4)
    (x,) = to(torch.zeros(4, 3))
    x.t().copy_(host)
    assert torch.equal(x.cpu(), host.t().float())
    (z,) = to(torch.zeros(2, 3, 4))
    z.copy_(host)  # broadcasts
    assert torch.equal(z.cpu(), host.float().expand(2, 3, 4))


def test_download_is_a_copy() -> None:
    (x,) = to(torch.arange(3.0))
    host = x.cpu()
    host.fill_(9)
    assert x.tolist() == [0, 1, 2]
    x.add_(1)
    assert host.tolist() == [9, 9, 9]


# ---------------------------------------------------------------------------------------------- order


def test_a_later_write_does_not_overtake_an_earlier_read() -> None:
    (x,) = to(torch.arange(4.0))
    seen = []
    for _ in range(5):
        seen.append(x * 1)
        x.add_(1)
    x.zero_()
    assert [t.tolist() for t in seen] == [[i, i + 1, i + 2, i + 3] for i in range(5)]


def test_order_over_graph_ends() -> None:
    (x,) = to(torch.arange(3.0))
    first = x + 0
    torch.ops.sinter._end_graph("test")
    x.mul_(10)
    second = x + 0
    torch.ops.sinter._end_graph("test")
    x.fill_(7)
    assert (first.tolist(), second.tolist(), x.tolist()) == ([0, 1, 2], [0, 10, 20], [7, 7, 7])


def test_reading_what_is_ready_ends_no_graph() -> None:
    (ready,) = to(torch.ones(3))
    under_test.sync()
    y = ready * 2  # pending, and it reads `ready`
    _, rose = counted(lambda: ready.tolist(), "graphs_ended")
    assert rose["graphs_ended"] == 0
    assert y.tolist() == [2, 2, 2]


def test_a_tensor_that_is_gone_needs_no_result() -> None:
    (x,) = to(torch.ones(3))
    y = x + 1
    z = y * 2
    del y
    assert z.tolist() == [4, 4, 4]


def test_a_result_that_nobody_can_see_any_more_is_not_computed() -> None:
    (x,) = to(torch.ones(3))
    under_test.sync()
    seen, unseen = x + 1, x + 2
    del unseen
    _, rose = counted(under_test.sync, "library_calls", "kernels_run")
    assert sum(rose.values()) == 1
    assert seen.tolist() == [2, 2, 2]


def test_an_update_runs_in_place() -> None:
    """Neither another address nor a second copy of the memory, however often."""
    x, y = to(torch.ones(1 << 18), torch.ones(1 << 18))
    under_test.sync()
    address = x.untyped_storage().data_ptr()
    torch_sinter.reset_peak_memory_stats()
    before = torch_sinter.memory_allocated()
    for _ in range(3):
        x.add_(y).mul_(2)
    under_test.sync()
    assert torch_sinter.max_memory_allocated() - before < x.nbytes
    assert x.untyped_storage().data_ptr() == address
    assert x[0].item() == 22


def test_an_update_keeps_the_old_value_for_who_reads_it_later() -> None:
    (x,) = to(torch.ones(3))
    old, view = x * 1, x[1:]
    x.add_(1)
    later = old + view.sum()  # the old contents of x and its new ones
    x.zero_()
    assert later.tolist() == [5, 5, 5]


def test_graphs_hold_memory_but_no_storages() -> None:
    """A storage's count reaches Python; it is the same whatever was recorded or ended."""
    (x,) = to(torch.ones(3))
    read, written = x + 1, x + 2

    def owners() -> list[int]:
        return [torch._C._storage_Use_Count(t.untyped_storage()._cdata) for t in (x, read, written)]

    before = owners()
    results = [read * 2, written.add_(x), read[1:] + 1]
    assert owners() == before
    torch.ops.sinter._end_graph("test")
    assert owners() == before
    assert [t.tolist() for t in results] == [[4, 4, 4], [4, 4, 4], [3, 3]]


def test_streams_and_events_are_positions_in_one_order() -> None:
    (x,) = to(torch.zeros(3))
    side = torch.Stream(device=under_test.NAME)
    event = torch.Event(device=under_test.NAME)
    with side:
        x.add_(1)
        event.record()
    event.wait()
    y = x * 2
    event.synchronize()
    assert event.query()
    assert y.tolist() == [2, 2, 2]


# ---------------------------------------------------------------------------------------------- exported memory


def test_writes_into_exported_memory_show_at_once() -> None:
    x = pending()
    host = torch.ops.sinter._host_view(x)
    assert host.device.type == "cpu"
    assert host.tolist() == [2, 3, 4, 5]
    x.add_(1)
    assert host.tolist() == [3, 4, 5, 6]
    x[1:].mul_(2)
    assert host.tolist() == [3, 8, 10, 12]
    torch.add(x, 1, out=x)
    assert host.tolist() == [4, 9, 11, 13]


def test_writes_from_outside_are_seen() -> None:
    x = pending()
    host = torch.ops.sinter._host_view(x)
    y = x * 10
    host.fill_(1)
    z = x * 10
    assert z.tolist() == [10, 10, 10, 10]
    assert y.tolist() in ([20, 30, 40, 50], [10, 10, 10, 10])  # read before or after, as two streams would


def test_exported_memory_does_not_move() -> None:
    x = pending()
    address = torch.ops.sinter._host_view(x).data_ptr()
    for _ in range(3):
        x.mul_(2)
        x.copy_(torch.arange(4.0))
        under_test.sync()
    assert x.data_ptr() == address


def test_an_address_handed_out_is_an_export() -> None:
    x = pending()
    memory = (ctypes.c_float * 4).from_address(x.data_ptr())
    x.add_(1)
    assert list(memory) == [3, 4, 5, 6]


def test_dlpack_shares_memory() -> None:
    x = pending()
    capsule = torch.utils.dlpack.to_dlpack(x)
    y = torch.utils.dlpack.from_dlpack(capsule)
    x.add_(1)
    assert y.cpu().tolist() == [3, 4, 5, 6]


# ---------------------------------------------------------------------------------------------- memory that changes size


def test_resize_keeps_common_bytes_and_pending_work() -> None:
    (x,) = to(torch.arange(4.0))
    before = x * 10
    x.add_(1)
    x.resize_(6)
    assert x[:4].tolist() == [1, 2, 3, 4]
    x.fill_(7)
    assert before.tolist() == [0, 10, 20, 30]
    x.resize_(2)
    assert x.tolist() == [7, 7]
    assert x.untyped_storage().nbytes() == 24


def test_resize_moves_every_view() -> None:
    (x,) = to(torch.arange(4.0))
    v = x[1:]
    x.resize_(100)
    v.fill_(5)
    assert x[:4].tolist() == [0, 5, 5, 5]


def test_storage_resize() -> None:
    """What sharded training does between forward and backward."""
    (x,) = to(torch.arange(4.0))
    y = x * 2
    x.untyped_storage().resize_(0)
    assert y.tolist() == [0, 2, 4, 6]
    x.untyped_storage().resize_(16)
    x.copy_(torch.ones(4))
    assert x.tolist() == [1, 1, 1, 1]


def test_set_and_data() -> None:
    a, b = to(torch.arange(3.0), torch.ones(3))
    kept = a * 1
    a.set_(b)
    a.add_(1)
    assert (kept.tolist(), a.tolist(), b.tolist()) == ([0, 1, 2], [2, 2, 2], [2, 2, 2])
    c = torch.zeros(3, device=under_test.NAME, requires_grad=True)
    c.data = b
    c.data.mul_(3)
    assert b.tolist() == [6, 6, 6]
    assert c._version == 0


# ---------------------------------------------------------------------------------------------- what stays in memory


def test_a_kept_scalar_does_not_pin_its_graph() -> None:
    """Results that outlive a graph never lie in the memory of its intermediates."""
    (x,) = to(torch.ones(1 << 18))  # a megabyte
    losses = []
    for _ in range(3):
        losses.append(((x * 2).exp() + x).mean())
        under_test.sync()
    start = torch.accelerator.memory_allocated() if torch.accelerator.is_available() else None
    for _ in range(30):
        losses.append(((x * 2).exp() + x).mean())
        under_test.sync()
    if start is not None:
        assert torch.accelerator.memory_allocated() - start < 1 << 20
    assert len({float(loss) for loss in losses}) == 1


def test_memory_of_dropped_tensors_is_used_again() -> None:
    import json

    def allocated() -> int:
        return json.loads(torch.ops.sinter._memory_stats())["allocated"]

    (x,) = to(torch.ones(1 << 18))
    for _ in range(3):
        x = x * 1.5
        under_test.sync()
    before = allocated()
    for _ in range(50):
        x = x * 1.0
        under_test.sync()
    assert allocated() - before < 1 << 19
    buffer = io.BytesIO()
    torch.save(x, buffer)
    assert buffer.tell() > 1 << 20


def test_counters_of_bytes() -> None:
    host = torch.ones(1000)
    before = counter("bytes_to_device")
    x = host.to(under_test.NAME)
    assert counter("bytes_to_device") - before == 4000
    before = counter("bytes_to_host")
    x.cpu()
    assert counter("bytes_to_host") - before == 4000
