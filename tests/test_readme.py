"""The README's snippets run, and the names it uses exist."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_python(tmp_path):
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks("python")))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "20 steps" in done.stdout


def test_cpp_names():
    header = (ROOT / "include" / "sinter" / "sinter.h").read_text()
    used = set(re.findall(r"sinter::(\w+)\(", "".join(blocks("cpp"))))
    assert used
    for name in used:
        assert re.search(rf"^SINTER_API .*\b{name}\(", header, re.MULTILINE), name


def test_links():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
