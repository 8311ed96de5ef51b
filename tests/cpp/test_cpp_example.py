"""A C++ program outside the source tree: found by find_package(sinter), trained on real text, equal to the CPU, saved and loaded."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torch_sinter

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpp"
STEPS = 60


def tool(name):
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    cmake = tool("cmake")
    if cmake is None or not (shutil.which("c++") or os.environ.get("CXX")):
        pytest.skip("needs cmake and a C++ compiler")
    build = tmp_path_factory.mktemp("example")
    package = Path(torch_sinter.__file__).parent
    arguments = ["-S", str(EXAMPLE), "-B", str(build), f"-DCMAKE_PREFIX_PATH={package}"]
    if tool("ninja"):
        arguments += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"]
    if tool("ccache"):
        arguments.append(f"-DCMAKE_CXX_COMPILER_LAUNCHER={tool('ccache')}")
    run(cmake, *arguments)
    run(cmake, "--build", str(build))
    return build / "train_text"


def train(program, device, folder):
    output = run(str(program), "--device", device, "--steps", str(STEPS), "--save", str(folder / f"{device}.pt"))
    losses = [float(loss) for loss in re.findall(r"^step \d+ loss (\S+)$", output, re.MULTILINE)]
    held_out = re.search(r"^held-out loss (\S+), after save and load (\S+)$", output, re.MULTILINE)
    return losses, held_out.groups(), output


def test_trains_as_on_the_cpu(program, tmp_path):
    losses, (held_out, reloaded), output = train(program, "sinter", tmp_path)
    expected, (expected_held_out, _), _ = train(program, "cpu", tmp_path)
    assert losses[-1] < 0.75 * losses[0]
    assert losses == pytest.approx(expected, rel=1e-6)
    assert float(held_out) == pytest.approx(float(expected_held_out), rel=1e-6)
    assert held_out == reloaded
    # The loop repeats: only the first steps and the held-out loss have graphs of their own.
    planned = int(re.search(r"graphs planned: (\d+)", output).group(1))
    assert planned <= 12, output


def test_needs_no_python(program):
    libraries = run("ldd", str(program))
    assert "libtorch_sinter.so" in libraries
    assert "libpython" not in libraries
