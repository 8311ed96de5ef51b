"""Copies of argument trees that look the same from every side.

A Mover copies whole storages and lays the same views over them, so sizes, strides, offsets, conjugate and negative
bits and the sharing of memory between arguments survive. Tensors arrive as leaves. The same object twice stays the
same object twice. Moving to "cpu" makes an independent copy: both sides of a comparison start from one.
"""

from __future__ import annotations

from typing import Any

import torch


class Mover:
    def __init__(self, device: str, scalars_stay: bool = False) -> None:
        self.device = device
        self.scalars_stay = scalars_stay  # leave 0-dim tensors on the CPU, as scripts do with plain numbers
        self.bases: list[torch.Tensor] = []  # one byte tensor for each storage, in order of first appearance
        self.tensors: list[torch.Tensor] = []  # what was made, in order
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._objects: dict[int, torch.Tensor] = {}
        self._kept: list[Any] = []  # originals stay alive, so that their ids stay theirs

    def __call__(self, tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            return self.tensor(tree)
        if isinstance(tree, torch.device):
            return torch.device(self.device) if tree.type == "cpu" else tree
        if isinstance(tree, torch.Generator):
            return torch.Generator(self.device).manual_seed(tree.initial_seed())
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return type(tree)(*map(self, tree))
        if isinstance(tree, (list, tuple)):
            return type(tree)(map(self, tree))
        if isinstance(tree, dict):
            return {key: torch.device(self.device) if key == "device" else self(value) for key, value in tree.items()}
        return tree

    def tensor(self, source: torch.Tensor) -> torch.Tensor:
        if source.layout != torch.strided or source.device.type != "cpu" or source.is_quantized:
            raise NotStrided(f"{source.layout} tensor on {source.device}")
        if type(source) not in (torch.Tensor, torch.nn.Parameter):
            raise NotStrided(f"tensor subclass {type(source).__name__}")
        if id(source) in self._objects:
            return self._objects[id(source)]
        self._kept.append(source)
        device = "cpu" if self.scalars_stay and source.dim() == 0 else self.device
        made = torch.empty(0, dtype=source.dtype, device=device)
        made.set_(self._storage(source, device), source.storage_offset(), source.size(), source.stride())
        if source.is_conj():
            made = torch._conj(made)
        if source.is_neg():
            made = torch._neg_view(made)
        if isinstance(source, torch.nn.Parameter):
            made = torch.nn.Parameter(made, source.requires_grad)
        elif source.requires_grad:
            made = made.detach().requires_grad_()
        self._objects[id(source)] = made
        self.tensors.append(made)
        return made

    def _storage(self, source: torch.Tensor, device: str) -> torch.UntypedStorage:
        storage = source.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            self._kept.append(storage)
            base = torch.empty(0, dtype=torch.uint8).set_(storage)
            moved = base.clone() if device == "cpu" else base.to(device)
            self._storages[key] = moved.untyped_storage()
            self.bases.append(moved)
        return self._storages[key]


class NotStrided(Exception):
    """The tree holds a tensor that is no plain strided CPU tensor."""


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [t for part in tree for t in tensors_of(part)]
    if isinstance(tree, dict):
        return [t for part in tree.values() for t in tensors_of(part)]
    return []
