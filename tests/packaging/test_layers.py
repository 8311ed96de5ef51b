"""tools/check_layers.py finds each kind of breach, and only those."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest
from commands import ROOT

_spec = importlib.util.spec_from_file_location("check_layers", ROOT / "tools" / "check_layers.py")
check_layers = importlib.util.module_from_spec(_spec)
sys.modules["check_layers"] = check_layers  # dataclasses look their module up
_spec.loader.exec_module(check_layers)


@pytest.fixture
def tree(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(check_layers, "ROOT", tmp_path)
    for name in ("src/support/hash.h", "src/plan/plan.h", "src/torch/device.h"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def complaints(name: str, text: str) -> list[str]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return check_layers.complaints(tmp_path)

    return complaints


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("src/graph/g.cpp", '#include "plan/plan.h"', "lies above"),
        ("src/graph/g.cpp", '  #  include "src/plan/plan.h"', "lies above"),
        ("src/graph/g.cpp", '#include "../plan/plan.h"', "lies above"),
        ("src/runtime/r.cpp", '#include "torch/device.h"', "lies above"),
        ("src/extra/e.cpp", "", "is no layer"),
        ("src/autoload/a.cpp", '#include "support/hash.h"', "stands apart"),
        ("src/plan/p.cpp", "#include <ATen/core/Tensor.h>", "PyTorch's"),
        ("src/plan/p.h", "#include <torch/library.h>", "PyTorch's"),
        ("src/torch/t.cpp", "#include <Python.h>", "CPython"),
        ("src/torch/t.cpp", "#include <torch/extension.h>", "CPython"),
        ("include/sinter/s.h", '#include "support/hash.h"', "not installed"),
        ("src/plan/p.cpp", 'auto x = std::getenv("X");', "environment"),
        ("src/plan/p.cpp", "\n" * 701, "lines"),
        ("python/torch_sinter/p.py", "\n" * 701, "lines"),
    ],
)
def test_each_breach_is_found(tree, name: str, text: str, words: str):
    (found,) = tree(name, text)
    assert words in found and found.startswith(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/plan/p.cpp", '#include "support/hash.h"\n#include "plan/plan.h"\n#include <vector>'),
        ("src/torch/t.cpp", '#include <torch/library.h>\n#include <ATen/ops/mm.h>\n#include "torch/device.h"'),
        ("src/autoload/a.cpp", "#include <ATen/detail/PrivateUse1HooksInterface.h>"),
        ("include/sinter/s.h", "#include <torch/torch.h>\n#include <sinter/export.h>"),
        ("src/support/flags.cpp", 'auto x = std::getenv("X");'),
        ("src/support/x.cpp", "// getenv() is not called here"),
        ("src/plan/p.cpp", "\n" * 700),
    ],
)
def test_what_is_allowed_passes(tree, name: str, text: str):
    assert tree(name, text) == []
