#!/usr/bin/env python3
"""Writes docs/flags.md from the flag table, src/support/flags.def.

tools/gen_flags_doc.py            write the page
tools/gen_flags_doc.py --check    exit with 1 when the page is stale
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "src" / "support" / "flags.def"
PAGE = ROOT / "docs" / "flags.md"

HEAD = """\
# Flags

<!-- Written by tools/gen_flags_doc.py from src/support/flags.def; edit that file, not this one. -->

torch-sinter reads these environment variables once, when the device is first used. Afterwards
`torch.ops.sinter._set_flag("NAME", "value")` changes a flag and `torch.ops.sinter._flags()` lists them, both by the name
without `SINTER_`. A value that does not parse is reported once and the default stays.

A *bool* takes 0, 1, true, false, on, off, yes or no. *Bytes* take a number with an optional unit: 1000, 64K, 512M, 2G.
Flags marked *in key* may change what is compiled, so a change of theirs makes new plans and kernels.

| variable | type | default | in key | meaning |
| --- | --- | --- | --- | --- |
"""


class Flag(NamedTuple):
    name: str
    type: str
    default: str
    in_key: bool
    help: str


def split_arguments(text: str) -> list[str]:
    """Splits at the commas outside string literals."""
    return [part.strip() for part in re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^,"])+', text)]


def literal(text: str) -> str:
    """The text of adjacent C string literals."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', text)
    return re.sub(r"\\(.)", r"\1", "".join(parts))


def show_default(kind: str, text: str) -> str:
    if text == "kDebugBuild":
        return "on in debug builds, else off"
    if kind == "bool":
        return {"true": "on", "false": "off"}[text]
    if kind == "string":
        return f"`{literal(text)}`" if literal(text) else "(empty)"
    number = eval(re.sub(r"int64_t\{(\d+)\}", r"\1", text), {"__builtins__": {}})
    if kind == "bytes" and number:
        for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
            if number % (1 << shift) == 0:
                return f"{number >> shift}{unit}"
    return str(number)


def read_table(text: str) -> list[Flag]:
    text = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    flags = []
    for match in re.finditer(r'SINTER_FLAG_(\w+)\(((?:"(?:[^"\\]|\\.)*"|[^"()])*)\)', text):
        kind = match[1].lower()
        args = split_arguments(match[2])
        name, default, in_key, explanation = args[1], args[2], args[-2], literal(args[-1])
        if kind == "string" and literal(args[3]):
            choices = [c for c in literal(args[3]).split("|") if c]
            explanation += " One of " + ", ".join(f"`{c}`" for c in choices) + "."
        flags.append(Flag(name, kind, show_default(kind, default), in_key == "true", explanation))
    if len(flags) != len(re.findall(r"^SINTER_FLAG_", text, flags=re.M)):
        raise SystemExit(f"{TABLE}: some row could not be read")
    return flags


def page(flags: list[Flag]) -> str:
    rows = [f"| `SINTER_{f.name}` | {f.type} | {f.default} | {'yes' if f.in_key else ''} | {f.help} |" for f in flags]
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether the page is current")
    arguments = parser.parse_args()
    wanted = page(read_table(TABLE.read_text(encoding="utf-8")))
    if not arguments.check:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        print(f"{PAGE.relative_to(ROOT)} is stale: run tools/gen_flags_doc.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
