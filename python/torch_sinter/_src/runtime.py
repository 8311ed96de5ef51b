"""The shared library: finding it, loading it once, and the few of its operators that everything else is made of.

Owns the step from "named" to "loaded" (torch_sinter_autoload.registration has the states). `initialize` is safe to
call from any thread and from any number of places; when it fails it has changed nothing, so a later call tries again
and fails with the same words.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
from typing import Any

import torch

from torch_sinter_autoload import TORCH, entrances, registration

NAME = registration.NAME

_entered = False


class LibraryError(ImportError):
    """The compiled part of torch-sinter could not be loaded."""


def library_path() -> pathlib.Path:
    return pathlib.Path(registration.library_path())


def is_loaded() -> bool:
    return registration.state is registration.State.LOADED


def initialize() -> None:
    """Load the library and install the hooks, once."""
    global _entered
    if is_loaded():
        return
    with registration.lock:
        # The hooks below may ask for the device while they are installed.
        if is_loaded() or _entered:
            return
        _entered = True
        try:
            registration.want()
            _load_library()
            from torch_sinter._src import device_module, hooks

            hooks.install()
            registration.mark_loaded()
            if registration.pending_seed is not None:
                device_module.manual_seed_all(registration.pending_seed)
        finally:
            _entered = False


def _load_library() -> None:
    path = library_path()
    if not path.exists():
        raise LibraryError(
            f"the device {NAME!r} needs {path}, which is not there. The package was copied without its compiled part: "
            f"install a wheel, or run `make setup` in a source tree."
        )
    prime_autograd()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(
            f"{path} could not be loaded into torch {torch.__version__}: {error}. It was built for torch "
            f"{TORCH}; another torch build (or a library that it needs) is the usual cause."
        ) from error
    if not hasattr(torch.ops.sinter, "_sync"):
        raise LibraryError(f"{path} loaded, but it registered no operators: is it a build of another project?")
    entrances.open(library)


def prime_autograd() -> None:
    """Let the autograd engine start while it still knows no device of ours.

    Its first backward in a process starts one thread for each device that exists then, for good. With the device
    there already it would start one, and from then on refuse to run in a forked child; with the device coming later
    (a CPU baseline before the real run) it would have none and fail. So it always starts without, and
    hooks/backward.py runs our backwards on the thread that called them, which is what a CPU does.
    """
    with torch.enable_grad(), torch.inference_mode(False):
        leaf = torch.zeros((), device="cpu", requires_grad=True)
        torch.autograd.grad(leaf * 1, leaf)


# ---- the library's operators ---------------------------------------------------------------------
def call(name: str, *args: Any) -> Any:
    """Call torch.ops.sinter.<name>, loading the library first."""
    initialize()
    return getattr(torch.ops.sinter, name)(*args)


def call_json(name: str, *args: Any) -> Any:
    return json.loads(call(name, *args))


def sync(cause: str = "torch_sinter.sync") -> None:
    """End the open graph and wait until everything recorded so far has run. Does nothing before the first use."""
    if is_loaded():
        torch.ops.sinter._sync(cause)
