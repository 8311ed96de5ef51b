"""The device's state in this process, its name, and `torch.sinter`.

state      how it is reached                       torch.accelerator says   library
---------  --------------------------------------  -----------------------  --------------------------
HIDDEN     `import torch`                          what it said before      not loaded
WANTED     `import torch_sinter`, torch.sinter.x   sinter (and loads)       not loaded
LOADED     first tensor, stream, query, ...        sinter                   loaded, hooks installed

States only ever move down this list.
"""

from __future__ import annotations

import enum
import importlib.machinery
import os
import threading
import types
import warnings
from typing import Any

import torch

from torch_sinter_autoload import accelerator, entrances, is_built_for, names

NAME = "sinter"
LIBRARY = "libtorch_sinter.so"
_UNNAMED = "privateuseone"


class State(enum.Enum):
    UNREGISTERED = 0
    HIDDEN = 1
    WANTED = 2
    LOADED = 3


class BackendConflictError(RuntimeError):
    """Another out-of-tree backend holds PyTorch's only slot for one (PrivateUse1)."""


state = State.UNREGISTERED

# Held through the first use, imports included. A fork waits for it: a child has none of the other threads, so what one
# of them had begun (a module's import, the library, the autograd engine) could never end there.
lock = threading.RLock()
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

# torch.manual_seed reaches every registered device. A seed given before the first use waits here for the library.
pending_seed: int | None = None


def library_path() -> str:
    return os.path.join(entrances.library_folder(), LIBRARY)


# ---- torch.sinter --------------------------------------------------------------------------------
class _DeviceModule(types.ModuleType):
    """`torch.sinter` before it is used: it answers what torch asks in every process, and fetches the rest on demand.

    The names of torch_sinter._src.device_module are copied in here when that module is imported. Asking for one of them
    earlier is a use of the device.
    """

    def __getattr__(self, name: str) -> Any:
        if name in names.PUBLIC:
            with lock:
                from torch_sinter._src import device_module as filled

                return getattr(filled, name)
        raise AttributeError(f"module 'torch.{NAME}' has no attribute {name!r}")

    def is_available(self) -> bool:
        return os.path.exists(library_path())

    def device_count(self) -> int:
        return int(self.is_available())

    def is_initialized(self) -> bool:
        return state is State.LOADED

    def synchronize(self, device: Any = None) -> None:
        pass

    def _lazy_init(self) -> None:
        """torch calls this before anything that makes a tensor, a storage or a stream on the device."""
        initialize()

    def _is_in_bad_fork(self) -> bool:
        # A graph that has not run is plain data, and nothing of the device belongs to a thread: a child may use it.
        return False

    def manual_seed_all(self, seed: int) -> None:
        global pending_seed
        pending_seed = int(seed)


device_module: Any = _DeviceModule(f"torch.{NAME}", "The lazy device of torch-sinter, as torch.cuda is CUDA's.")
# torch.utils.checkpoint and FakeTensor read this plain attribute.
device_module._initialized = False
# importlib.util.find_spec("torch.sinter") fails for a module that has none.
device_module.__spec__ = importlib.machinery.ModuleSpec(device_module.__name__, None)


# ---- moving through the states -------------------------------------------------------------------
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
    # The name is there already where a C++ extension has loaded our library, and with it the real hooks.
    if taken != NAME and is_built_for(torch.__version__):
        problem = entrances.install(_load_for_cpp)
        if problem is not None:
            raise BackendConflictError(f"torch-sinter cannot add the device {NAME!r}: {problem}")
    torch.utils.rename_privateuse1_backend(NAME)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    torch._register_device_module(NAME, device_module)
    # As on the CPU. PyTorch keeps this per thread; other threads name the type, or get its default, float16.
    torch.set_autocast_dtype(NAME, torch.bfloat16)
    accelerator.hide(_may_be_found)
    state = State.HIDDEN


def want() -> None:
    """The script has asked for the device: from now on queries find it, and load it."""
    global state
    register()
    if state is State.HIDDEN:
        state = State.WANTED


def initialize() -> None:
    """Load the library and install the hooks, once."""
    if state is not State.LOADED:
        with lock:
            from torch_sinter._src import runtime

            runtime.initialize()


def mark_loaded() -> None:
    """The library is in and its hooks are installed."""
    global state
    state = State.LOADED
    device_module._initialized = True
    accelerator.show()


def _may_be_found() -> bool:
    """Whether a query for the accelerator may find the device; loads it if so."""
    if state is State.HIDDEN:
        return False
    initialize()
    return True


def _load_for_cpp(asked: entrances.Asked) -> None:
    if asked is entrances.Asked.PINNED_MEMORY and state is State.HIDDEN:
        # To pin is not to ask for this device: nothing says that the copy is meant for it.
        raise RuntimeError(
            f"{accelerator.NONE_AVAILABLE} (torch-sinter is installed: pin memory after the first use of the device "
            f"{NAME!r}, or import torch_sinter.)"
        )
    initialize()


# ---- the entry point -----------------------------------------------------------------------------
def _has_other_accelerator() -> bool:
    """Whether this is a build for another accelerator on a machine that seems to have one.

    There, C++ would take us for the accelerator of the process and the other one's autograd would be wrong, so such a
    process gets the device only with `import torch_sinter`. Files are looked at rather than torch asked, because asking
    starts a driver.
    """
    nodes = {"cuda": ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"), "xpu": ("/dev/dri",), "mps": ("/System/Library",)}
    return any(
        getattr(torch._C, f"_has_{build}", False) and any(map(os.path.exists, paths)) for build, paths in nodes.items()
    )


def autoload() -> None:
    if _has_other_accelerator():
        return
    try:
        register()
    except Exception as problem:  # whatever it is, torch must stay usable without us
        warnings.warn(str(problem), RuntimeWarning, stacklevel=2)
