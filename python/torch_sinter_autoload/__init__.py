"""What `import torch` runs for torch-sinter: the name "sinter", an almost empty `torch.sinter`, and nothing else.

It is a package of its own, apart from torch_sinter, for two reasons. It runs in every process that imports torch, so it
must cost next to nothing. And `import torch_sinter` is how a script says that it wants the device, which could not be
told from the autoload if both executed the same module.

    registration   the state of the process, the name, `torch.sinter`
    accelerator    keeping torch.accelerator as it was until the device is asked for
    entrances      the small C++ library for uses of the device that Python does not see
"""

from __future__ import annotations

# libtorch's C++ interface changes with each minor release, so a build of ours serves one of them.
TORCH = "2.13"


def is_built_for(torch_version: str) -> bool:
    return torch_version.split("+")[0].split(".")[:2] == TORCH.split(".")


def _autoload() -> None:
    """The `torch.backends` entry point. It never makes `import torch` fail."""
    from torch_sinter_autoload import registration

    registration.autoload()
