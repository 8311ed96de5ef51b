"""The checkout, and running commands in an environment that is not this one.

Not a conftest and not a package: a package named `packaging` would hide the real one from pip and pytest.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping

import pytest

Done = subprocess.CompletedProcess[str]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(
    *command: object, cwd: pathlib.Path | None = None, env: Mapping[str, str] | None = None, ok: bool = True
) -> Done:
    """Runs a command with both outputs in one text; fails the test with that text when the command fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=900,
    )
    if ok and done.returncode:
        pytest.fail(
            f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-6000:]}", pytrace=False
        )
    return done


def outside_environment(**more: str) -> dict[str, str]:
    """This process's environment without what would let a child find this checkout or its virtual environment."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CMAKE_PREFIX_PATH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    path = [
        part for part in environment.get("PATH", "").split(os.pathsep) if part != str(pathlib.Path(sys.prefix, "bin"))
    ]
    return environment | {"PATH": os.pathsep.join(path)} | more
