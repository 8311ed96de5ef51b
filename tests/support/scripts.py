"""Whole scripts in processes of their own, with the package or as if it were not installed."""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

import torch_sinter

PACKAGES = pathlib.Path(torch_sinter.__file__).resolve().parent.parent

# What a machine without the package is like: the name cannot be imported and nothing autoloads.
_NOT_INSTALLED = """
import sys
class _Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch_sinter", "torch_sinter_autoload"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, _Missing())
"""

# Runs many scripts, each in a fork of a process that has done nothing but import torch: that import is what takes long.
_EACH = """
import json, os, sys, tempfile, traceback
import torch

def run(source):
    outputs = [tempfile.TemporaryFile("w+") for _ in range(2)]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for number, output in zip((1, 2), outputs):
                os.dup2(output.fileno(), number)
            exec(compile(source, "script", "exec"), {"__name__": "__main__"})
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = []
    for output in outputs:
        output.seek(0)
        texts.append(output.read())
    return [status, *texts]

scripts = json.load(open(sys.argv[1]))
json.dump({name: run(source) for name, source in scripts.items()}, open(sys.argv[2], "w"))
"""


@dataclass(frozen=True)
class Outcome:
    returncode: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def last_error(self) -> str:
        """The last line of the traceback."""
        return self.stderr.strip().splitlines()[-1] if self.stderr.strip() else ""


@functools.cache
def _metadata() -> str | None:
    """A folder with the entry point, for a checkout that was never installed; None where the package is installed."""
    if any(entry.value.startswith("torch_sinter") for entry in importlib.metadata.entry_points(group="torch.backends")):
        return None
    folder = tempfile.mkdtemp(prefix="sinter-metadata-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    info = pathlib.Path(folder) / "torch_sinter-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-sinter\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_sinter = torch_sinter_autoload:_autoload\n")
    return folder


def run(
    source: str,
    *arguments: object,
    installed: bool = True,
    autoload: bool = True,
    check: bool = True,
    timeout: float = 300,
    **environment: str,
) -> Outcome:
    """Run a script. `installed=False` hides the package; `check=False` allows it to fail."""
    paths = [str(PACKAGES), *filter(None, [_metadata() if autoload else None, os.environ.get("PYTHONPATH")])]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(installed and autoload)),
        "HF_HUB_OFFLINE": "1",
        **environment,
    }
    source = ("" if installed else _NOT_INSTALLED) + textwrap.dedent(source)
    with tempfile.TemporaryDirectory(prefix="sinter-script-") as folder:
        # A file, not -c: tracebacks and multiprocessing's spawn need one.
        path = pathlib.Path(folder) / "script.py"
        path.write_text(source)
        process = subprocess.run(
            [sys.executable, str(path), *map(str, arguments)],
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    outcome = Outcome(process.returncode, process.stdout, process.stderr)
    if check and outcome.returncode != 0:
        raise AssertionError(f"the script ended with {outcome.returncode}:\n{outcome.stderr[-4000:]}")
    return outcome


def run_each(sources: Mapping[str, str], *, installed: bool = True, timeout: float = 600) -> dict[str, Outcome]:
    """Run many scripts, each in a process that has imported torch and nothing else. They may fail."""
    with tempfile.TemporaryDirectory(prefix="sinter-scripts-") as folder:
        given, results = (pathlib.Path(folder) / name for name in ("scripts.json", "results.json"))
        given.write_text(json.dumps({name: textwrap.dedent(source) for name, source in sources.items()}))
        run(_EACH, given, results, installed=installed, timeout=timeout)
        return {name: Outcome(*values) for name, values in json.loads(results.read_text()).items()}
