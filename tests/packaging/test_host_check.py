"""tools/check_host.sh says what a bare machine lacks, before anything is downloaded."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

import pytest
from commands import ROOT, Done, run

TOOLS = ["uname", "mktemp", "rm", "cat", "head", "df", "awk", "sh"]


class Machine:
    """A folder as PATH, with the basic tools and whatever else a test puts there."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)

    def has(self, name: str, text: str = "#!/bin/sh\nexit 0\n") -> None:
        (self.bin / name).unlink(missing_ok=True)  # a link to the real one
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def check(self) -> Done:
        environment = {name: value for name, value in os.environ.items() if name != "CXX"} | {"PATH": str(self.bin)}
        return run("sh", ROOT / "tools" / "check_host.sh", "python3", cwd=self.bin, env=environment, ok=False)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path)


def test_this_machine_is_complete():
    done = run("sh", ROOT / "tools" / "check_host.sh", sys.executable, cwd=ROOT)
    assert done.stdout == ""


def test_all_that_is_missing_is_said_at_once(machine: Machine):
    done = machine.check()
    assert done.returncode == 1
    assert "no python3 found" in done.stdout and "apt-get install python3 python3-venv" in done.stdout
    assert "no C++ compiler found" in done.stdout and "apt-get install g++" in done.stdout


def test_an_old_python(machine: Machine):
    machine.has("python3", '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.1 && exit 0\nexit 1\n')
    assert "python3 is Python 3.8.1; Python 3.10 or newer is needed" in machine.check().stdout


def test_a_python_without_venv(machine: Machine):
    machine.has("python3", '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexit 0\n')
    done = machine.check()
    assert "its venv module is missing" in done.stdout and "apt-get install python3-venv" in done.stdout


def test_an_old_compiler(machine: Machine):
    machine.has("python3")
    machine.has("c++", '#!/bin/sh\ncase "$1" in -dump*) echo 9.3.0; exit 0;; esac\necho "no concepts" >&2\nexit 1\n')
    done = machine.check()
    assert "c++ (9.3.0) cannot build a C++20 program" in done.stdout and "no concepts" in done.stdout


def test_a_full_disk(machine: Machine):
    machine.has("python3")
    machine.has("c++")
    machine.has("df", "#!/bin/sh\necho Filesystem 1M-blocks Used Available\necho /dev/x 100 90 10\n")
    assert "only 10 MB are free" in machine.check().stdout
