"""The `torch-sinter` command."""

from torch_sinter.cli.main import main as main
