"""The wheel, as a user meets it: installed where there is no compiler and no checkout."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import zipfile

import pytest
from commands import ROOT, Done, outside_environment, run

pytestmark = pytest.mark.slow

TRAIN = """
import torch
from torch import nn

def train(device):
    torch.manual_seed(0)
    x, y = torch.randn(64, 20), torch.randint(0, 4, (64,))
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4)).to(device)
    x, y = x.to(device), y.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]

device, cpu = train("sinter"), train("cpu")
assert device[-1] < 0.5 * device[0], device
assert all(abs(a - b) <= 1e-5 * abs(b) for a, b in zip(device, cpu)), (device, cpu)
import torch_sinter
print("trained with", torch_sinter.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Built as `make wheel` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A new virtual environment with the wheel and what it requires, and nothing else."""
    venv = tmp_path_factory.mktemp("clean") / "venv"
    run(sys.executable, "-m", "venv", venv)
    index = os.environ.get("TORCH_INDEX_URL")
    pip = (venv / "bin" / "python", "-m", "pip", "install", "-q", *(("--extra-index-url", index) if index else ()))
    run(*pip, wheel, cwd=venv, env=outside_environment())
    return venv


def in_clean(venv: pathlib.Path, *command: str, ok: bool = True, **environment: str) -> Done:
    """Runs a command of the clean environment with nothing else on PATH: no compiler, no assembler, no linker."""
    scrubbed = outside_environment(PATH=str(venv / "bin"), **environment)
    for name in ("CC", "CXX", "LD_LIBRARY_PATH"):
        scrubbed.pop(name, None)
    return run(venv / "bin" / command[0], *command[1:], cwd=venv, env=scrubbed, ok=ok)


def test_one_wheel_serves_every_python(wheel: pathlib.Path):
    assert wheel.name.split("-")[2:4] == ["py3", "none"]


def test_the_wheel_holds_what_it_should(wheel: pathlib.Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"torch_sinter/lib/libtorch_sinter.so", "torch_sinter/lib/libsinter_autoload.so"} <= set(names)
    assert "torch_sinter/lib/cmake/sinter/sinter-config.cmake" in names
    assert "torch_sinter/include/sinter/sinter.h" in names
    assert "torch_sinter/py.typed" in names
    tops = {name.split("/")[0].split("-")[0] for name in names}
    assert tops <= {"torch_sinter", "torch_sinter_autoload", "torch_xla"}, tops


def test_it_trains_without_a_compiler(clean: pathlib.Path):
    for tool in ("cc", "c++", "gcc", "g++", "clang", "ld", "as"):
        assert not (clean / "bin" / tool).exists()
    script = clean / "train.py"
    script.write_text(TRAIN)
    assert f"trained with {clean}" in in_clean(clean, "python", script).stdout


def test_the_command_runs(clean: pathlib.Path):
    out = in_clean(clean, "torch-sinter", "info").stdout
    assert "2.13" in out
    prefix = in_clean(clean, "torch-sinter", "info", "--cmake-prefix").stdout.splitlines()[
        -1
    ]  # torch warns that numpy is missing
    assert (pathlib.Path(prefix) / "lib/cmake/sinter/sinter-config.cmake").is_file(), prefix


def test_a_library_needs_no_cpython(clean: pathlib.Path):
    (library,) = clean.glob("lib/python*/site-packages/torch_sinter/lib/libtorch_sinter.so")
    assert b"libtorch_python" not in library.read_bytes()


@pytest.mark.parametrize("use", ["import torch_sinter", "import torch; torch.empty(2, device='sinter')"])
def test_another_torch_gets_a_clear_message(clean: pathlib.Path, use: str):
    """Another release of torch is another C++ interface: that must be said, not crashed into."""
    # The version is all that is needed of another release to see what its user would be told.
    pretend = (
        f"import torch.version; torch.version.__version__ = '2.12.1'; import torch; torch.__version__ = '2.12.1'; {use}"
    )
    done = in_clean(clean, "python", "-c", pretend, ok=False)
    assert done.returncode == 1
    last = done.stdout.strip().splitlines()[-1]
    assert "torch 2.13" in last and "2.12.1" in last and "pip install" in last, done.stdout


def test_import_torch_alone_loads_no_library(clean: pathlib.Path):
    code = (
        "import json, torch; maps = open('/proc/self/maps').read(); import sys; "
        "print(json.dumps([hasattr(torch, 'sinter'), 'libtorch_sinter' in maps, 'torch_sinter' in sys.modules]))"
    )
    assert json.loads(in_clean(clean, "python", "-W", "ignore", "-c", code).stdout) == [True, False, False]
