"""Our version, and the sentence a user reads when torch's is the wrong one."""

from __future__ import annotations

import importlib.metadata

from torch_sinter_autoload import TORCH as TORCH
from torch_sinter_autoload import is_built_for

_DISTRIBUTION = "torch-sinter"


def installed() -> str:
    """This release's version; "unknown" when the package is used from a checkout that was never installed."""
    try:
        return importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def check_torch() -> None:
    """Raise ImportError unless the torch that is installed is one that this release was built for."""
    install = f"pip install 'torch=={TORCH}.*'"
    try:
        import torch
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ImportError(
            f"torch_sinter {installed()} needs torch {TORCH}, and none is installed: {install}", name="torch"
        ) from None
    if not is_built_for(torch.__version__):
        raise ImportError(
            f"torch_sinter {installed()} was built for torch {TORCH}, but torch {torch.__version__} is installed. "
            f"Install the torch it was built for ({install}) or the torch-sinter release for the one you have.",
            name="torch_sinter",
        )
