"""Small models of the kinds people train, each a module, a batch for a step, and a loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Workload:
    make: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], tuple[torch.Tensor, ...]]
    loss: Callable[..., torch.Tensor]
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    options: dict[str, float] = dataclasses.field(default_factory=lambda: {"lr": 1e-3})


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.before(x)).chunk(3, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x))


class CharacterModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(30, 32), nn.Parameter(torch.randn(1, 24, 32) * 0.02)
        self.blocks = nn.Sequential(Attention(32, 4), Attention(32, 4))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 30, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.token(ids) + self.place[:, : ids.shape[1]])))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.side = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        main = self.norms[1](self.two(F.relu(self.norms[0](self.one(x)))))
        return F.relu(main + self.norms[2](self.side(x)))


def convolutional() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(Residual(8, 8, 1), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)),
    )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 16), nn.Linear(32, 30)
        self.lstm = nn.LSTM(16, 32, 2, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(ids))[0])


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 2, "vocab_size": 60}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**shape, **heads, use_cache=False))


def _rows(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return torch.randn(16, 20, generator=g), torch.randint(0, 5, (16,), generator=g)


def _images(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    return torch.randn(8, 3, 16, 16, generator=g), torch.randint(0, 5, (8,), generator=g)


def _text(g: torch.Generator) -> tuple[torch.Tensor, ...]:
    ids = torch.randint(0, 30, (6, 25), generator=g)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def _classes(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)


def _tokens(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


ALL = {
    "perceptron": Workload(perceptron, _rows, _classes),
    "character model": Workload(CharacterModel, _text, _tokens),
    "convolutional": Workload(
        convolutional, _images, _classes, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
    ),
    "recurrent": Workload(Recurrent, _text, _tokens, torch.optim.Adam),
    "llama": Workload(
        llama, lambda g: (torch.randint(0, 60, (4, 20), generator=g),), lambda m, ids: m(input_ids=ids, labels=ids).loss
    ),
}
