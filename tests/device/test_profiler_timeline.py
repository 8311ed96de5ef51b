"""torch.profiler with the device's activity: every kernel on the timeline, under the call that asked for it."""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from support import device as under_test

pytestmark = pytest.mark.lazy

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


@pytest.fixture
def step(device: str) -> Callable[[], float]:
    """A training step that ends with a read."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to(device)
    x = torch.randn(8, 16, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run() -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    run()
    return run


def kernels(prof: Any) -> list[Any]:
    return [e for e in prof.events() if e.device_type == DeviceType.PrivateUse1]


@pytest.mark.exact
def test_every_library_call_is_on_the_timeline(step: Callable[[], float]):
    with profile(activities=BOTH) as prof:
        _, counts = under_test.counted(lambda: [step() for _ in range(3)], "library_calls")
    found = kernels(prof)
    assert len(found) == counts["library_calls"] > 30
    names = [e.name for e in found]
    assert names.count("aten::addmm") == 3 * 2
    assert names.count("aten::mm") == 3 * 3
    assert names.count("aten::gelu_backward") == 3


def test_kernels_have_times_in_order_inside_the_profile(step: Callable[[], float]):
    with profile(activities=BOTH) as prof, record_function("all of it"):
        step()
    found = sorted(kernels(prof), key=lambda e: e.time_range.start)
    whole = next(e for e in prof.events() if e.name == "all of it" and e.device_type == DeviceType.CPU)
    assert all(e.time_range.end >= e.time_range.start for e in found)
    for before, after in itertools.pairwise(found):  # one stream, in order
        assert before.time_range.end <= after.time_range.start + 1
    assert whole.time_range.start <= found[0].time_range.start
    assert found[-1].time_range.end <= whole.time_range.end
    assert sum(e.time_range.elapsed_us() for e in found) <= whole.time_range.elapsed_us()


@pytest.mark.exact
def test_a_kernel_is_counted_under_the_call_that_recorded_it(step: Callable[[], float]):
    """However late it runs: forward's and backward's kernels all run at the read."""
    with profile(activities=BOTH) as prof:
        step()
    rows = {(row.key, row.device_type): row for row in prof.key_averages()}
    for call, kernel in (("aten::addmm", "aten::addmm"), ("aten::mm", "aten::mm"), ("aten::gelu", "aten::gelu")):
        on_host, on_device = rows[call, DeviceType.CPU], rows[kernel, DeviceType.PrivateUse1]
        assert on_host.self_device_time_total == pytest.approx(on_device.self_device_time_total)
        assert on_device.self_device_time_total > 0
    assert rows["aten::linear", DeviceType.CPU].device_time_total > 0
    backward = rows["AddmmBackward0", DeviceType.CPU]
    assert backward.device_time_total > 0
    table = prof.key_averages().table(sort_by="self_device_time_total")
    assert "Self SINTER" in table
    assert "aten::addmm" in table


def test_ops_that_run_at_once_are_kernels_too(device: str):
    x = torch.tensor([1.0, 0.0, 2.0], device=device)
    x.cpu()
    with profile(activities=BOTH) as prof:
        torch.nonzero(x)
    (kernel,) = [e for e in kernels(prof) if e.name == "aten::nonzero"]
    (call,) = [e for e in prof.events() if e.name == "aten::nonzero" and e.device_type == DeviceType.CPU]
    assert [k.name for k in call.kernels] == ["aten::nonzero"]
    assert kernel.time_range.elapsed_us() >= 0


def test_work_that_is_pending_at_the_end_is_waited_for(device: str):
    x = torch.randn(8, 8, device=device)
    x.cpu()
    with profile(activities=BOTH) as prof:
        pending = x @ x
    assert [e.name for e in kernels(prof)] == ["aten::mm"]
    assert pending.shape == (8, 8)


@pytest.mark.exact
def test_the_chrome_trace(step: Callable[[], float], tmp_path: pathlib.Path):
    with profile(activities=BOTH) as prof:
        step()
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    found = [e for e in events if e.get("cat") == "kernel"]
    assert len(found) == len(kernels(prof))
    addmm = next(e for e in found if e["name"] == "aten::addmm")
    assert addmm["args"]["detail"].startswith("aten::addmm(f32[")
    runs = [e for e in events if e.get("cat") == "privateuse1_runtime" and e["name"] == "sinter::graph"]
    assert runs
    assert any(r["ts"] <= addmm["ts"] and addmm["ts"] + addmm["dur"] <= r["ts"] + r["dur"] + 1 for r in runs)
    host = {e["args"].get("External id"): e["name"] for e in events if e.get("cat") == "cpu_op"}
    assert host[addmm["args"]["External id"]] == "aten::addmm"


@pytest.mark.exact
def test_a_schedule_keeps_the_active_steps_only(step: Callable[[], float]):
    seen: list[int] = []
    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda prof: seen.append(sum(e.name == "aten::gelu" for e in kernels(prof))),
    ) as prof:
        for _ in range(8):
            step()
            prof.step()
    assert seen == [2, 2]


def test_nothing_is_kept_without_the_activity(step: Callable[[], float]):
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        step()
    assert kernels(prof) == []
    assert any(e.name == "aten::addmm" for e in prof.events())


def test_values_are_the_same_while_profiled(device: str):
    x = torch.randn(16, 16, device=device)
    want = torch.linalg.qr(x @ x).Q.cpu()
    with profile(activities=BOTH, record_shapes=True, with_stack=True, profile_memory=True):
        got = torch.linalg.qr(x @ x).Q.cpu()
    assert torch.equal(want, got)


def test_a_graph_that_a_bound_cuts_keeps_its_links(device: str):
    limit = under_test.flag("MAX_GRAPH_OPS")
    under_test.set_flag("MAX_GRAPH_OPS", 16)
    try:
        x = torch.randn(8, device=device)
        with profile(activities=BOTH) as prof:
            for _ in range(20):
                x = (x * 1.5).sin()
            x.cpu()
        calls = [e for e in prof.events() if e.name == "aten::sin" and e.device_type == DeviceType.CPU]
        assert len(calls) == 20
        assert all([k.name for k in call.kernels] == ["aten::sin"] for call in calls)
    finally:
        under_test.set_flag("MAX_GRAPH_OPS", limit)


def test_failing_kernels_do_not_end_the_profile(device: str):
    weight = torch.randn(4, 3, device=device)
    with profile(activities=BOTH) as prof:
        with pytest.raises((IndexError, RuntimeError)):
            torch.nn.functional.embedding(torch.tensor([9], device=device), weight).cpu()
        (weight * 2).cpu()
    assert "aten::mul.Tensor" in [e.name for e in kernels(prof)]
