"""Parsing the command line. A subcommand is one module and one row of COMMANDS.

Exit status: 0 done, 1 the command failed, 2 it was called wrongly (argparse's own).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch_sinter.cli import cache, info


class Command(NamedTuple):
    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


COMMANDS = (
    Command("info", "print versions, engines, CPU features and places", info.add_arguments, info.run),
    Command("cache", "show, verify or clear the kernels kept on disk", cache.add_arguments, cache.run),
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torch-sinter", description="A lazy device for PyTorch training.")
    subparsers = parser.add_subparsers(dest="command", metavar="command", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except BrokenPipeError:
        # The reader (head, less) has gone; leave nothing for the interpreter to complain about at exit.
        sys.stderr.close()
        return 1
