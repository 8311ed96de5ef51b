"""torch.profiler: the device has an activity, and its executor is on the timeline."""

from __future__ import annotations

import json

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def work(device: str) -> float:
    x = torch.rand(64, 64, device=device)
    with record_function("my block"):
        for _ in range(3):
            x = (x @ x).softmax(-1)
    return x.sum().item()


def test_the_activity_is_there() -> None:
    assert ProfilerActivity.SINTER in torch.profiler.supported_activities()


def test_recorded_ops_and_blocks_are_seen(device: str) -> None:
    work(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as session:
        work(device)
    names = {event.key for event in session.key_averages()}
    assert {"my block", "aten::matmul", "aten::softmax", "aten::item"} <= names
    assert "my block" in session.key_averages().table()


def test_the_executors_kernels_are_on_the_timeline(device: str, tmp_path) -> None:
    work(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as session:
        work(device)
    session.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) >= 6, sorted({event.get("cat") for event in events if event.get("cat")})
    assert all(event["dur"] >= 0 for event in kernels)
    assert any("mm" in event["name"] for event in kernels)


def test_profiling_changes_no_result(device: str) -> None:
    torch.manual_seed(0)
    want = work(device)
    torch.manual_seed(0)
    with profile():
        got = work(device)
    assert got == want


def test_schedule_and_step(device: str) -> None:
    traces = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)
    with profile(schedule=schedule, on_trace_ready=lambda session: traces.append(session.key_averages())) as session:
        for _ in range(3):
            work(device)
            session.step()
    assert len(traces) == 1 and any(event.key == "my block" for event in traces[0])
