"""Counts what the comparisons covered and prints it at the end."""

from __future__ import annotations

import pytest

from conformance import op_runs


def pytest_configure(config: pytest.Config) -> None:
    config.stash[op_runs.TOTALS] = op_runs.Report()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    total = config.stash[op_runs.TOTALS]
    if total.calls:
        counts = ", ".join(f"{count} {variant}" for variant, count in total.calls.items())
        terminalreporter.write_line(
            f"operators: {sum(total.calls.values())} calls compared with the CPU ({counts}; {total.random} random; "
            f"left out: {dict(total.skipped)}), {len(total.failures)} differ"
        )
