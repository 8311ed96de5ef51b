"""The `torch-sinter` command."""

from __future__ import annotations

import json
import pathlib

from support import scripts


def command(*arguments: str, check: bool = True) -> scripts.Outcome:
    source = "import sys\nfrom torch_sinter.cli import main\nsys.exit(main())"
    return scripts.run(source, *arguments, check=check)


def test_info() -> None:
    facts = json.loads(command("info", "--json").stdout)
    assert facts["torch"].startswith("2.13") and facts["engines"] and facts["cpu_features"]
    text = command("info").stdout
    for name in ("torch-sinter", "engines", "cpu features", "kernel cache"):
        assert name in text
    assert facts["cache_dir"] in text


def test_cmake_prefix_holds_the_package() -> None:
    prefix = pathlib.Path(command("info", "--cmake-prefix").stdout.strip())
    assert (prefix / "lib" / "cmake" / "sinter" / "sinter-config.cmake").exists()


def test_wrong_use_is_explained() -> None:
    for arguments in ((), ("no-such",), ("info", "--no-such")):
        outcome = command(*arguments, check=False)
        assert outcome.returncode == 2
        assert "usage: torch-sinter" in outcome.stderr and "Traceback" not in outcome.stderr


def test_a_cache_folder_is_reported() -> None:
    outcome = scripts.run(
        "import torch_sinter; print(torch_sinter.info()['cache_dir'])", SINTER_CACHE_DIR="/tmp/somewhere"
    )
    assert outcome.lines == ["/tmp/somewhere"]
