"""find_package(sinter) by itself; tests/cpp builds and runs a program with it."""

from __future__ import annotations

import pathlib
import sys

import pytest
from commands import Done, outside_environment, run

BIN = pathlib.Path(sys.prefix, "bin")


@pytest.fixture(scope="module")
def prefix() -> str:
    return run(BIN / "torch-sinter", "info", "--cmake-prefix").stdout.strip()


def configure(source: pathlib.Path, build: pathlib.Path, *more: str, ok: bool = True) -> Done:
    return run(BIN / "cmake", "-S", source, "-B", build, *more, env=outside_environment(), ok=ok)


PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES CXX)
find_package(sinter REQUIRED)
get_target_property(location sinter::sinter IMPORTED_LOCATION)
get_target_property(torch sinter::torch INTERFACE_LINK_LIBRARIES)
message(STATUS "library=${location} torch=${torch}")
"""


def test_the_package_finds_torch_by_itself(prefix: str, tmp_path: pathlib.Path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    out = configure(tmp_path, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}").stdout
    assert "libtorch_sinter.so" in out and "libtorch_cpu.so" in out and "libc10.so" in out


def test_another_torch_is_refused_in_words(prefix: str, tmp_path: pathlib.Path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    other = tmp_path / "libtorch"
    header = other / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 12\n")
    (other / "lib").mkdir()
    (other / "lib/libtorch_cpu.so").touch()
    done = configure(
        tmp_path, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DSINTER_TORCH_DIR={other}", ok=False
    )
    words = " ".join(done.stdout.split())  # CMake wraps its messages
    assert done.returncode and "needs PyTorch 2.13" in words and "has 2.12" in words, done.stdout
