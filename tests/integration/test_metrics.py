"""torch_sinter.metrics and flags."""

from __future__ import annotations

import json

import pytest
import torch

import torch_sinter
from support import scripts


def step(device: str) -> float:
    x = torch.ones(4, device=device)
    return (x * 2 + 1).sum().item()


def test_counters_and_reset(device: str) -> None:
    step(device)
    torch_sinter.metrics.reset()
    assert torch_sinter.metrics.counters().get("ops_recorded", 0) == 0
    step(device)
    counters = torch_sinter.metrics.counters()
    assert counters["ops_recorded"] >= 4 and counters["graphs_ended"] == 1 and counters["syncs"] == 1
    assert torch_sinter.metrics.timers()["run"]["count"] == 1
    assert torch_sinter.metrics.timers()["run"]["seconds"] > 0


def test_syncs_have_causes(device: str) -> None:
    torch_sinter.metrics.reset()
    for _ in range(3):
        step(device)
    (torch.ones(2, device=device) + 1).cpu()
    torch_sinter.sync()
    syncs = torch_sinter.metrics.syncs()
    assert syncs[0]["count"] == 3 and "item" in syncs[0]["cause"]
    assert len(syncs) >= 2


def test_lines_when_asked(device: str) -> None:
    with torch_sinter.flags.override(TRACE_LINES=True):
        torch_sinter.metrics.reset()
        torch.ones(2, device=device).sum().item()  # this very line
    lines = [sync["line"] for sync in torch_sinter.metrics.syncs()]
    assert any("test_metrics.py" in line for line in lines), lines


def test_compiles_stop(device: str) -> None:
    for _ in range(4):
        step(device)
    before = torch_sinter.metrics.compiles()
    for _ in range(10):
        step(device)
    assert torch_sinter.metrics.compiles() == before > 0


def test_report_shows_what_is_in_the_dict(device: str) -> None:
    torch_sinter.metrics.reset()
    step(device)
    data = torch_sinter.metrics.as_dict()
    report = torch_sinter.metrics.report()
    json.dumps(data)
    assert {"counters", "timers", "syncs", "fallbacks", "memory", "compiles"} <= set(data)
    for name, count in data["counters"].items():
        assert (name in report) == (count != 0)
    assert "item" in report and report.startswith("torch-sinter: ")
    assert max(map(len, report.splitlines())) < 160


def test_before_the_first_use_everything_is_empty() -> None:
    outcome = scripts.run(
        """
        import torch_sinter
        torch_sinter.metrics.reset()
        print(torch_sinter.metrics.as_dict()["counters"], torch_sinter.metrics.compiles())
        print(torch_sinter.metrics.report())
        import torch
        print(torch.sinter.is_initialized())
        """
    )
    assert outcome.lines == ["{} 0", "torch-sinter: 0 steps, 0 graphs (0 planned), 0 syncs", "False"]


REPORTING = """
import torch
model = torch.nn.Linear(2, 2).to("sinter")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(1, 2, device="sinter")).sum().backward()
    optimizer.step()
print(model.weight.sum().item() is not None)
"""


def test_a_line_at_exit_when_asked() -> None:
    outcome = scripts.run(REPORTING, SINTER_REPORT="1")
    (line,) = (line for line in outcome.stderr.splitlines() if line.startswith("torch-sinter:"))
    assert "3 steps" in line and "graphs" in line and "1 syncs" in line
    assert "torch-sinter" not in scripts.run(REPORTING).stderr


def test_flags(device: str) -> None:
    flags = {flag.name: flag for flag in torch_sinter.flags.list()}
    assert {"BLOCKING", "TRACE_LINES", "MEMORY_LIMIT", "REPORT"} <= set(flags)
    assert all(flag.help for flag in flags.values())
    assert torch_sinter.flags.get("BLOCKING") is False is torch_sinter.flags.get("SINTER_BLOCKING")
    x = torch.ones(2, device=device)
    with torch_sinter.flags.override(BLOCKING=True):
        assert torch_sinter.flags.get("BLOCKING") is True
        x = x + 1
    assert torch_sinter.flags.get("BLOCKING") is False and x.tolist() == [2.0, 2.0]


def test_flags_of_that_name_do_not_exist() -> None:
    for use in (torch_sinter.flags.get, lambda name: torch_sinter.flags.set(name, 1)):
        with pytest.raises(ValueError, match=r"BLOCKNG.*BLOCKING"):
            use("BLOCKNG")
    with pytest.raises(ValueError, match="MAX_GRAPH_OPS"):
        torch_sinter.flags.set("MAX_GRAPH_OPS", "many")


def test_override_restores_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), torch_sinter.flags.override(TRACE_LINES=True):
        raise ZeroDivisionError
    assert torch_sinter.flags.get("TRACE_LINES") is False


def test_info() -> None:
    info = torch_sinter.info()
    assert info["torch"] == torch.__version__ and info["problem"] is None
    assert info["engines"] == [torch_sinter.flags.get("ENGINE")] and info["library"].endswith(".so")


def test_seeds_and_memory_of_the_facade(device: str) -> None:
    torch_sinter.manual_seed(4)
    first = torch.rand(3, device=device).tolist()
    torch_sinter.manual_seed(4)
    assert torch.rand(3, device=device).tolist() == first
    torch_sinter.synchronize()
