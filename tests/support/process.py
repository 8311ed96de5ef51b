"""Scripts in a process of their own: for exits, signals, settings that are read at the start."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

from support import device as under_test

PRELUDE = """
import sys
sys.path.insert(0, {tests!r})
import torch
from support import device as under_test
under_test.load_or_exit()
D = under_test.NAME
"""


def command(script: str) -> list[str]:
    tests = str(under_test.ROOT / "tests")
    return [sys.executable, "-W", "ignore", "-c", PRELUDE.format(tests=tests) + textwrap.dedent(script)]


def environment(settings: dict[str, object]) -> dict[str, str]:
    return os.environ | {name: str(value) for name, value in settings.items()}


def run(script: str, timeout: float = 120, **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs a script that finds `torch`, `D` and `under_test`; keyword arguments are environment variables."""
    return subprocess.run(
        command(script), env=environment(settings), capture_output=True, text=True, timeout=timeout, check=False
    )


def output(script: str, timeout: float = 120, **settings: object) -> str:
    """What it printed; it must end well."""
    done = run(script, timeout, **settings)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
