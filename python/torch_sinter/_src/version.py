"""Which torch this release is for, and the sentence a user reads when another one is installed."""

from __future__ import annotations

import importlib.metadata

# libtorch's C++ interface changes with each minor release, so a build serves one of them.
TORCH = "2.13"
_DISTRIBUTION = "torch-sinter"


def installed() -> str:
    """This release's version; "unknown" when the package is used from a checkout that was never installed."""
    try:
        return importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def check_torch(found: str | None = None) -> None:
    """Raise ImportError unless the torch that is installed is the one this release was built for."""
    if found is None:
        try:
            import torch
        except ModuleNotFoundError as missing:
            if missing.name != "torch":
                raise
            raise ImportError(
                f"torch_sinter {installed()} needs torch {TORCH}, and none is installed: pip install 'torch=={TORCH}.*'"
            ) from None
        found = torch.__version__
    release = found.split("+")[0]
    if release.split(".")[:2] != TORCH.split("."):
        raise ImportError(
            f"torch_sinter {installed()} was built for torch {TORCH}, but torch {found} is installed. Install the "
            f"torch it was built for (pip install 'torch=={TORCH}.*') or the torch-sinter release for torch {release}."
        )
