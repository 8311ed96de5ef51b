"""The Python side of src/autoload/entrances.cpp: uses of the device that reach C++ without passing Python.

torch.Generator("sinter"), torch.Stream, torch.Event and pin_memory() ask hooks or guard directly. A small library holds
both until the real one is there; it calls back here to have it loaded.
"""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Callable
from typing import Any

LIBRARY = "libsinter_autoload.so"


class Asked(enum.IntEnum):
    DEVICE = 0
    PINNED_MEMORY = 1


_Load = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)

# What C++ holds a pointer to must outlive the process's last call.
_library: Any = None
_callback: Any = None
_problem: Any = None


def library_folder() -> str:
    """Where both libraries lie: in the package torch_sinter, which is next door in an editable install too."""
    packages = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    return os.path.join(packages, "torch_sinter", "lib")


def install(load: Callable[[Asked], None]) -> str | None:
    """Put the stand-ins in place, or say why that cannot be.

    Without the library (a checkout that was not built) those entrances stay shut.
    """
    global _library, _callback
    path = os.path.join(library_folder(), LIBRARY)
    if not os.path.exists(path):
        return None

    @_Load
    def callback(asked: int) -> int | None:
        global _problem
        try:
            load(Asked(asked))
        except Exception as error:
            _problem = ctypes.create_string_buffer(str(error).encode())
            return ctypes.addressof(_problem)
        return None

    library = ctypes.CDLL(path)
    library.sinter_entrances_install.restype = ctypes.c_char_p
    library.sinter_entrances_open.argtypes = [ctypes.c_void_p]
    library.sinter_entrances_open.restype = None
    problem = library.sinter_entrances_install(callback)
    if problem is not None:
        return problem.decode()
    _library, _callback = library, callback
    return None


def open(device_library: ctypes.CDLL) -> None:
    """The real library is loaded: its hooks answer from now on."""
    if _library is not None:
        device_library.sinter_device_hooks.restype = ctypes.c_void_p
        _library.sinter_entrances_open(device_library.sinter_device_hooks())
