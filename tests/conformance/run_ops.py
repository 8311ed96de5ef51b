#!/usr/bin/env python
"""Compares operators on the device with the CPU, from the command line.

    python tests/conformance/run_ops.py                              # everything
    python tests/conformance/run_ops.py --op add --dtype float32 -v
    python tests/conformance/run_ops.py --op nn.functional --variant backward --now

Ends with the count of calls compared; exit status 1 where something differs.
"""
from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections import defaultdict

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import torch
from support import device as under_test


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--op", default="", help="names that contain this; =name for exactly that one")
    parser.add_argument("--dtype", action="append", help="repeatable; default all six")
    parser.add_argument("--variant", action="append", help="repeatable; default all")
    parser.add_argument("--now", action="store_true", help="read each result before the next call")
    parser.add_argument("--limit", type=int, default=3, help="failures shown for each operator, dtype and variant")
    parser.add_argument("-v", action="store_true", help="a line for each operator, and the arguments of failing calls")
    options = parser.parse_args()
    under_test.load_or_exit()
    from conformance import op_runs
    from conformance.exceptions import LEFT_OUT, UNINITIALISED
    from torch.testing._internal.common_methods_invocations import op_db

    dtypes = [getattr(torch, name) for name in options.dtype] if options.dtype else op_runs.DTYPES
    variants = options.variant or op_runs.VARIANTS
    total, failing, start = op_runs.Report(), set(), time.perf_counter()
    for op in op_db:
        chosen = op.name == options.op[1:] if options.op.startswith("=") else options.op in op.formatted_name or options.op in op.name
        if not chosen or op.name in LEFT_OUT:
            continue
        for dtype in dtypes:
            begin = time.perf_counter()
            report = op_runs.compare_op(op, dtype, variants, op.name not in UNINITIALISED, not options.now)
            if options.v:
                print(f"{op.formatted_name} {dtype}: {dict(report.calls)} {time.perf_counter() - begin:.2f} s", flush=True)
            shown: dict[str, int] = defaultdict(int)
            for call, found in report.failures:
                failing.add(op.formatted_name)
                shown[call.variant] += 1
                if shown[call.variant] <= options.limit:
                    print(f"FAIL {op.formatted_name} {dtype} {call.variant} sample {call.index} {call.label}: {'; '.join(found)[:600]}", flush=True)
                    if options.v:
                        print(f"     arguments: {call.arguments!r}"[:2000])
            for variant, count in shown.items():
                if count > options.limit:
                    print(f"     ... {count} such calls of {op.formatted_name} {dtype} {variant}")
            total.add(report)
    print(f"{sum(total.calls.values())} calls compared in {time.perf_counter() - start:.0f} s: {dict(total.calls)}; random {total.random}; "
          f"skipped {dict(total.skipped)}; failures {len(total.failures)} in {len(failing)} operators: {' '.join(sorted(failing))}")
    return bool(total.failures)


if __name__ == "__main__":
    sys.exit(main())
