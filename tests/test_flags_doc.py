"""docs/flags.md says what the flag table says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_page_is_current():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "gen_flags_doc.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
