#!/usr/bin/env python
"""Compares operators on the device with the CPU, from the command line.

    python tests/conformance/run_ops.py                              # everything
    python tests/conformance/run_ops.py --op add --dtype float32 -v
    python tests/conformance/run_ops.py --op nn.functional --variant backward --now

    python tests/conformance/run_ops.py --isolate                    # survives crashes: one process an operator

Ends with the count of calls compared; exit status 1 where something differs.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import pickle
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import torch

from support import device as under_test

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo

    from conformance.op_runs import Report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--op", default="", help="names that contain this; =name for exactly that one")
    parser.add_argument("--dtype", action="append", help="repeatable; default all six")
    parser.add_argument("--variant", action="append", help="repeatable; default all")
    parser.add_argument("--now", action="store_true", help="read each result before the next call")
    parser.add_argument("--limit", type=int, default=3, help="failures shown for each operator, dtype and variant")
    parser.add_argument("--isolate", action="store_true", help="a process for each operator")
    parser.add_argument("-v", action="store_true", help="a line for each operator, and the arguments of failing calls")
    options = parser.parse_args()
    if not options.isolate:
        under_test.load_or_exit()
    from torch.testing._internal.common_methods_invocations import op_db

    from conformance import op_runs
    from conformance.exceptions import LEFT_OUT

    total, failing, start = op_runs.Report(), [], time.perf_counter()
    for op in op_db:
        exact = options.op.startswith("=")
        chosen = op.name == options.op[1:] if exact else options.op in f"{op.name} {op.formatted_name}"
        if not chosen or op.name in LEFT_OUT:
            continue
        report = isolated(op, options) if options.isolate else compared(op, options)
        if report is None or report.failures:
            failing.append(op.formatted_name)
        total.add(report or op_runs.Report())
    print(f"{sum(total.calls.values())} calls compared in {time.perf_counter() - start:.0f} s: {dict(total.calls)}")
    print(f"random {total.random}; skipped {dict(total.skipped)}")
    print(f"{len(total.failures)} failures in {len(failing)} operators: {' '.join(failing)}")
    return bool(failing)


def compared(op: OpInfo, options: argparse.Namespace) -> Report:
    """The operator with every dtype asked for."""
    from conformance import op_runs
    from conformance.exceptions import UNINITIALISED

    total = op_runs.Report()
    for dtype in [getattr(torch, name) for name in options.dtype] if options.dtype else op_runs.DTYPES:
        begin = time.perf_counter()
        values = op.name not in UNINITIALISED
        report = op_runs.compare_op(op, dtype, options.variant or op_runs.VARIANTS, values, not options.now)
        seconds = time.perf_counter() - begin
        if options.v:
            print(f"{op.formatted_name} {dtype}: {dict(report.calls)} {seconds:.2f} s", flush=True)
        show(f"{op.formatted_name} {dtype}", report, options.limit, options.v)
        total.add(report)
    return total


def isolated(op: OpInfo, options: argparse.Namespace) -> Report | None:
    """The same in a child process; None if that did not end by itself."""
    from conformance.op_runs import Report

    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        under_test.load_or_exit()
        report = compared(op, options)
        os.write(write, pickle.dumps((report.calls, report.skipped, report.random, len(report.failures))))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        sent = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        print(f"FAIL {op.formatted_name}: ended with {os.waitstatus_to_exitcode(status)}", flush=True)
        return None
    calls, skipped, random, failures = pickle.loads(sent)
    return Report(calls, skipped, random, [None] * failures)


def show(title: str, report: Report, limit: int, arguments: bool) -> None:
    """The first failures of each variant."""
    shown: dict[str, int] = defaultdict(int)
    for call, found in report.failures:
        shown[call.variant] += 1
        if shown[call.variant] <= limit:
            what = f"{call.variant} sample {call.index} {call.label}"
            print(f"FAIL {title} {what}: {'; '.join(found)[:600]}", flush=True)
            if arguments:
                print(f"     arguments: {call.arguments!r}"[:2000])
    for variant, count in shown.items():
        if count > limit:
            print(f"     ... {count} such calls of {title} {variant}")


if __name__ == "__main__":
    sys.exit(main())
