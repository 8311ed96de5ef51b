"""Whether two results are the same, to the bit.

Values are compared as bits, so -0.0 is not 0.0; only NaNs count as equal to each other whatever their payload. Metadata
(sizes, strides, offset, dtype, conjugate and negative bits, memory shared with other tensors) is compared exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

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
        if not same_bits(want, on_cpu):
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
    if values and not (want == got or (want != want and got != got)):
        return [f"{where}: {want!r} != {got!r}"]
    return []
