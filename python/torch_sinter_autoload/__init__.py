"""What `import torch` runs for torch-sinter: the name "sinter", an almost empty `torch.sinter`, nothing else.

It is a package of its own, apart from torch_sinter, for two reasons. It runs in every process that imports torch, so
it must cost next to nothing. And `import torch_sinter` is how a script says that it wants the device, which could not
be told from the autoload if both executed the same module.

Until a script asks for the device, the process looks as it would without us:

    state      how it is reached                       torch.accelerator says   library
    HIDDEN     `import torch`                          what it said before      not loaded
    WANTED     `import torch_sinter`, torch.sinter.x   sinter (and loads)       not loaded
    LOADED     first tensor, stream, query, ...        sinter                   loaded, hooks installed
"""

from __future__ import annotations

import enum
import os
import types
import warnings
from typing import Any

import torch

NAME = "sinter"
_UNNAMED = "privateuseone"


class State(enum.Enum):
    UNREGISTERED = 0
    HIDDEN = 1
    WANTED = 2
    LOADED = 3


class BackendConflictError(RuntimeError):
    """Another out-of-tree backend holds PyTorch's only slot for one (PrivateUse1)."""


state = State.UNREGISTERED


class _DeviceModule(types.ModuleType):
    """`torch.sinter` before it is used: it answers what torch asks in every process, and fetches the rest on demand.

    Names of torch_sinter._src.device_module are copied in here when that module is imported; asking for one of them
    before is a use of the device.
    """

    def __getattr__(self, name: str) -> Any:
        # inspect, doctest and pickle ask each module for names like __file__ and __wrapped__.
        if name.startswith("__"):
            raise AttributeError(f"module 'torch.{NAME}' has no attribute {name!r}")
        from torch_sinter._src import device_module

        try:
            return getattr(device_module, name)
        except AttributeError:
            raise AttributeError(f"module 'torch.{NAME}' has no attribute {name!r}") from None


device_module = _DeviceModule(f"torch.{NAME}", "The lazy device of torch-sinter, as torch.cuda is that of CUDA.")
# torch.utils.checkpoint and FakeTensor read this plain attribute.
device_module._initialized = False  # type: ignore[attr-defined]

# torch.manual_seed reaches every registered device. A seed given before the first use waits here for the library.
pending_seed: int | None = None


def _manual_seed_all(seed: int) -> None:
    global pending_seed
    pending_seed = int(seed)


def _is_in_bad_fork() -> bool:
    # A graph that has not run is plain data, and nothing of the device belongs to a thread: a child may use it.
    return False


def _is_initialized() -> bool:
    return state is State.LOADED


def _lazy_init() -> None:
    """torch calls this before anything that makes a tensor, a storage or a stream on the device."""
    if state is not State.LOADED:
        from torch_sinter._src import runtime

        runtime.initialize()


for _name, _function in {
    "manual_seed_all": _manual_seed_all,
    "_is_in_bad_fork": _is_in_bad_fork,
    "is_initialized": _is_initialized,
    "_lazy_init": _lazy_init,
}.items():
    setattr(device_module, _name, _function)


# ---- the accelerator stays hidden ----------------------------------------------------------------
# To name a PrivateUse1 backend makes it *the* accelerator of the process, for C++ at once and for Python through
# these two functions. Every Python user (torch.accelerator, DataLoader, torch.distributed, FSDP, checkpoint) looks
# them up on torch._C at each call; so replacing the two names hides us, and putting them back leaves no trace.
_ACCELERATOR_QUERIES = ("_accelerator_getAccelerator", "_get_accelerator")
_original_queries: dict[str, Any] = {}


def _accelerator_without_us() -> torch.device | None:
    # The order of at::accelerator::getAccelerator. MTIA and HPU builds cannot be told apart from here.
    for name in ("cuda", "xpu", "mps"):
        if getattr(torch._C, f"_has_{name}", False):
            return torch.device(name)
    return None


def _answer(query: str) -> torch.device | None:
    if state is State.WANTED:
        _lazy_init()
    if state is State.LOADED:
        return _original_queries[query]()
    found = _accelerator_without_us()
    return torch.device("cpu") if found is None and query == "_get_accelerator" else found


def _hide_accelerator() -> None:
    for query in _ACCELERATOR_QUERIES:
        _original_queries[query] = getattr(torch._C, query)
        setattr(torch._C, query, lambda query=query: _answer(query))


def _show_accelerator() -> None:
    for query, function in _original_queries.items():
        setattr(torch._C, query, function)


# ---- entrances -----------------------------------------------------------------------------------
def register() -> None:
    """Name the device. Idempotent, so autoload and `import torch_sinter` may come in either order."""
    global state
    if state is not State.UNREGISTERED:
        return
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in (_UNNAMED, NAME):
        raise BackendConflictError(
            f"torch-sinter cannot add the device {NAME!r}: this process already has the out-of-tree backend {taken!r}, "
            f"and PyTorch has room for one (PrivateUse1). To use {NAME!r}, set TORCH_DEVICE_BACKEND_AUTOLOAD=0 "
            f"and import torch_sinter first; to use {taken!r}, uninstall torch-sinter or do not import it."
        )
    if not hasattr(torch.Tensor, f"is_{NAME}"):
        torch.utils.rename_privateuse1_backend(NAME)
        torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    if getattr(torch, NAME, None) is not device_module:
        torch._register_device_module(NAME, device_module)
    _hide_accelerator()
    state = State.HIDDEN


def want() -> None:
    """The script has asked for the device: from now on queries may find (and load) it."""
    global state
    register()
    if state is State.HIDDEN:
        state = State.WANTED


def mark_loaded() -> None:
    """The library is in and its hooks are installed."""
    global state
    state = State.LOADED
    device_module._initialized = True  # type: ignore[attr-defined]
    _show_accelerator()


def _has_other_accelerator() -> bool:
    """Whether this is a build for another accelerator on a machine that seems to have one.

    There, C++ would take us for the accelerator of the process and the other one's autograd would be wrong, so such a
    process gets the device only with `import torch_sinter`. The files are looked at rather than torch asked, because
    asking starts a driver.
    """
    nodes = {"cuda": ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"), "xpu": ("/dev/dri",), "mps": ("/System/Library",)}
    return any(
        getattr(torch._C, f"_has_{build}", False) and any(map(os.path.exists, paths)) for build, paths in nodes.items()
    )


def _autoload() -> None:
    """The `torch.backends` entry point. It never makes `import torch` fail."""
    if _has_other_accelerator():
        return
    try:
        register()
    except BackendConflictError as conflict:
        warnings.warn(str(conflict), RuntimeWarning, stacklevel=2)
