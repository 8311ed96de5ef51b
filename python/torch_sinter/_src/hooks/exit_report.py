"""SINTER_REPORT=1: one line on stderr when the process ends."""

from __future__ import annotations

import atexit
import sys

from torch_sinter._src import flags, metrics


def _print() -> None:
    if flags.get("REPORT"):
        print(metrics.summary(), file=sys.stderr)


def install() -> None:
    atexit.register(_print)
