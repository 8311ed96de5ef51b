"""The demo as a person runs it, with few steps: every line of the table is there and the losses agree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(script, *arguments):
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("script", ["train_gpt.py", "train_digits.py"])
def test_only_the_device_string_differs(script):
    losses = {}
    for device in ("cpu", "sinter"):
        done = run(script, "--device", device, "--steps", "3")
        assert done.returncode == 0, done.stderr
        losses[device] = [float(loss) for loss in re.findall(r"loss (\S+)", done.stdout)]
    assert losses["cpu"] == pytest.approx(losses["sinter"], abs=2e-4)
    assert losses["cpu"][-1] < losses["cpu"][0]


def test_demo_says_when_nothing_was_learnt():
    done = run("demo.py", "--steps", "2")
    assert done.returncode == 1
    assert "does not learn" in done.stderr
    assert "differ by" not in done.stderr
    for word in ("times", "first", "peak", "start", "end", "largest", "ms a step: median", "VmHWM"):
        assert word in done.stdout
    assert done.stdout.count("sinter") >= 2
