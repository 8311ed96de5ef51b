"""torch-sinter: a lazy device for PyTorch.

Nothing here has to be imported to use the device: `tensor.to("sinter")` is enough once torch is imported. This
package adds what PyTorch has no name for: metrics, flags, sync. `import torch_sinter` also says that this process
wants the device, so that torch.accelerator reports it.
"""

from torch_sinter._src import version as _version

_version.check_torch()

from torch_sinter_autoload import registration as _registration  # noqa: E402  (imports torch: checked first)

_registration.want()

from torch_sinter._src import flags as flags  # noqa: E402
from torch_sinter._src import metrics as metrics  # noqa: E402
from torch_sinter._src.device_module import empty_cache as empty_cache  # noqa: E402
from torch_sinter._src.device_module import manual_seed as manual_seed  # noqa: E402
from torch_sinter._src.device_module import max_memory_allocated as max_memory_allocated  # noqa: E402
from torch_sinter._src.device_module import memory_allocated as memory_allocated  # noqa: E402
from torch_sinter._src.device_module import memory_stats as memory_stats  # noqa: E402
from torch_sinter._src.device_module import reset_peak_memory_stats as reset_peak_memory_stats  # noqa: E402
from torch_sinter._src.device_module import synchronize as synchronize  # noqa: E402
from torch_sinter._src.info import info as info  # noqa: E402
from torch_sinter._src.runtime import LibraryError as LibraryError  # noqa: E402
from torch_sinter._src.runtime import sync as sync  # noqa: E402

__all__ = [
    "LibraryError",
    "empty_cache",
    "flags",
    "info",
    "manual_seed",
    "max_memory_allocated",
    "memory_allocated",
    "memory_stats",
    "metrics",
    "reset_peak_memory_stats",
    "sync",
    "synchronize",
]


def __getattr__(name: str) -> str:
    # Looking a version up in the installed metadata takes longer than all of the above.
    if name == "__version__":
        return _version.installed()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
