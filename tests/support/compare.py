"""Whether two results are the same: to the bit where the same kernels run, to the last bits where ours may.

The reference engine runs PyTorch's kernels only, so there nothing may differ. The native engine puts kernels of ours in
the place of some, whose floating-point results are held to a few roundings of the type, relative to the largest of the
tensor where sums cancel; integers and booleans stay exact.

Values are compared as bits, so -0.0 is not 0.0; only NaNs count as equal to each other whatever their payload. Metadata
(sizes, strides, offset, dtype, conjugate and negative bits, memory shared with other tensors) is compared exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from support import device as under_test

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(want: torch.Tensor, got: torch.Tensor) -> bool:
    """Both on the CPU, of equal dtype and size."""
    want, got = want.detach().resolve_conj().resolve_neg(), got.detach().resolve_conj().resolve_neg()
    if want.is_complex():
        want, got = torch.view_as_real(want), torch.view_as_real(got)
    if want.dtype is torch.bool:  # a byte other than 0 and 1 is True too, and copies write it as 1
        return torch.equal(want, got)
    bits = _BITS[want.element_size()]
    a, b = want.view(bits), got.view(bits)
    if torch.equal(a, b):
        return True
    if not want.is_floating_point():
        return False
    return bool(((a == b) | (want.isnan() & got.isnan())).all())


# Relative and, times the largest finite value, absolute: sums in another order, and a few steps of training on them.
_LAST_BITS = {
    torch.float64: (1e-12, 1e-13),
    torch.float32: (2e-5, 2e-6),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}


@functools.cache
def runs_kernels_of_ours() -> bool:
    return under_test.IS_LAZY and under_test.flag("ENGINE") != "reference"


def same_to_the_last_bits(want: torch.Tensor, got: torch.Tensor) -> bool:
    """Both on the CPU, of equal dtype and size."""
    want, got = want.detach().resolve_conj().resolve_neg(), got.detach().resolve_conj().resolve_neg()
    if want.is_complex():
        want, got = torch.view_as_real(want), torch.view_as_real(got)
    if want.dtype not in _LAST_BITS or not want.numel():
        return False
    relative, of_largest = _LAST_BITS[want.dtype]
    a, b = want.double(), got.double()
    finite = a[a.isfinite()].abs()
    floor = of_largest * float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(b, a, rtol=relative, atol=floor, equal_nan=True)


def agree(want: torch.Tensor, got: torch.Tensor) -> bool:
    """What the engine under test promises of two results. Both on the CPU, of equal dtype and size."""
    return same_bits(want, got) or (runs_kernels_of_ours() and same_to_the_last_bits(want, got))


def same_losses(want: Sequence[float], got: Sequence[float]) -> bool:
    """Losses of a training run in 32 bits, by the same promise."""
    if not runs_kernels_of_ours():
        return list(want) == list(got)
    return len(want) == len(got) and all(abs(a - b) <= 1e-5 * abs(a) for a, b in zip(want, got, strict=True))


def describe(want: torch.Tensor, got: torch.Tensor) -> str:
    """Where and by how much two tensors of equal size differ."""
    a, b = want.detach().resolve_conj().resolve_neg(), got.detach().resolve_conj().resolve_neg()
    differ = (a != b) & ~((a != a) & (b != b))
    count = int(differ.sum())
    if not count:
        return "signs of zero differ"
    first = tuple(differ.nonzero()[0].tolist())
    return f"{count} of {a.numel()} values differ, first at {first}: {a[first].item()} != {b[first].item()}"


def metadata(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "size": tuple(tensor.size()),
        "dtype": tensor.dtype,
        "stride": tuple(tensor.stride()),
        "offset": tensor.storage_offset(),
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        "requires_grad": tensor.requires_grad,
        "storage bytes": tensor.untyped_storage().nbytes(),
    }


def metadata_differences(want: torch.Tensor, got: torch.Tensor, storage: bool = False) -> list[str]:
    a, b = metadata(want), metadata(got)
    if not storage:
        del a["storage bytes"]
    return [f"{key} {a[key]} != {b[key]}" for key in a if a[key] != b[key]]


def sharing(tensors: Sequence[torch.Tensor]) -> list[int]:
    """For each tensor, the index of the first one over the same storage."""
    first: dict[int, int] = {}
    return [first.setdefault(t.untyped_storage()._cdata, i) for i, t in enumerate(tensors)]


def identities(objects: Sequence[Any]) -> list[int]:
    """For each object, the index of its first appearance."""
    first: dict[int, int] = {}
    return [first.setdefault(id(o), i) for i, o in enumerate(objects)]


def differences(want: Any, got: Any, where: str = "result", values: bool = True, storage: bool = False) -> list[str]:
    """What two trees of results differ in.

    `storage`: whether the sizes of storages must be equal too. Some CPU kernels allocate for an intermediate and shrink
    it to the result, so those of plain results may differ.
    """
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        found = [f"{where}: {line}" for line in metadata_differences(want, got, storage)]
        if not values or want.size() != got.size() or want.dtype != got.dtype:
            return found
        try:
            on_cpu = got.detach().cpu()
        except Exception as problem:
            return [*found, f"{where}: reading raised {type(problem).__name__}: {str(problem)[:200]}"]
        if not agree(want, on_cpu):
            found.append(f"{where}: {describe(want, on_cpu)}")
        return found
    if type(want) is not type(got):
        return [f"{where}: {type(want).__name__} != {type(got).__name__}"]
    if isinstance(want, (list, tuple)):
        if len(want) != len(got):
            return [f"{where}: {len(want)} items != {len(got)}"]
        pairs = enumerate(zip(want, got, strict=False))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}[{i}]", values, storage)]
    if isinstance(want, dict):
        if list(want) != list(got):
            return [f"{where}: keys {list(want)} != {list(got)}"]
        return [d for key in want for d in differences(want[key], got[key], f"{where}[{key!r}]", values, storage)]
    if isinstance(want, float) and values and runs_kernels_of_ours() and abs(want - got) <= 2e-5 * abs(want):
        return []
    if values and not (want == got or (want != want and got != got)):
        return [f"{where}: {want!r} != {got!r}"]
    return []
