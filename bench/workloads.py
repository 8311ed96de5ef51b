"""Training workloads to measure: data in a table, so that a new one is a function and a row. No dropout: losses must agree."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

Batch = tuple[torch.Tensor, ...]


class Workload(NamedTuple):
    model: nn.Module
    batch: Callable[[int], Batch]  # by seed
    loss: Callable[..., torch.Tensor]  # of the model and a batch
    optimizer: Callable[..., torch.optim.Optimizer]  # of the parameters


def classes(sizes: tuple[int, ...], count: int) -> Callable[[int], Batch]:
    """Normal inputs, one class each."""

    def batch(seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(*sizes, generator=generator)
        return x, torch.randint(count, sizes[:1], generator=generator)

    return batch


def tokens(rows: int, length: int, count: int) -> Callable[[int], Batch]:
    """Sequences, and the same one token later."""

    def batch(seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(count, (rows, length + 1), generator=generator)
        return x[:, :-1].contiguous(), x[:, 1:].contiguous()

    return batch


def classify(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)


def predict_next(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def mlp_small() -> Workload:
    """Kernels of tens of microseconds: what is left is the cost of the road to them."""
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return Workload(model, classes((64, 32), 10), classify, lambda p: torch.optim.Adam(p, 1e-3))


def mlp_large() -> Workload:
    widths = (512, 1024, 1024, 1024)
    layers = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.GELU(), nn.LayerNorm(b)]
    model = nn.Sequential(*layers, nn.Linear(widths[-1], 20))
    return Workload(model, classes((384, widths[0]), 20), classify, lambda p: torch.optim.AdamW(p, 1e-3))


class Attention(nn.Module):
    """Causal attention with grouped key and value heads; rotary positions where `rotary` is set."""

    def __init__(self, width: int, heads: int, kv_heads: int, rotary: bool, bias: bool):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.rotary = heads, kv_heads, width // heads, rotary
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(width, 2 * kv_heads * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        half = self.size // 2
        frequency = 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angle = torch.arange(x.shape[2], device=x.device, dtype=torch.float32)[:, None] * frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q = self.q(x).view(rows, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(rows, length, 2, self.kv_heads, self.size).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        if self.kv_heads != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(rows, length, width))


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, heads, rotary=False, bias=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, length: int, width: int, layers: int, heads: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*[GPTBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.token(x) + self.position[: x.shape[1]])))


def gpt() -> Workload:
    model = GPT(vocabulary=96, length=128, width=192, layers=4, heads=6)
    return Workload(model, tokens(12, 128, 96), predict_next, lambda p: torch.optim.AdamW(p, 3e-4))


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads, rotary=True, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def llama_like() -> Workload:
    """Grouped heads, rotary positions, RMSNorm, SwiGLU; gradients are clipped, as usual."""
    width, vocabulary = 192, 512
    model = nn.Sequential(
        nn.Embedding(vocabulary, width),
        *[LlamaBlock(width, heads=6, kv_heads=2, hidden=512) for _ in range(4)],
        nn.RMSNorm(width),
        nn.Linear(width, vocabulary, bias=False),
    )
    return Workload(model, tokens(8, 128, vocabulary), predict_next, lambda p: torch.optim.AdamW(p, 3e-4))


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


def conv() -> Workload:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        Residual(32),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        Residual(64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    batch = classes((32, 3, 32, 32), 10)
    return Workload(model, batch, classify, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=5e-4))


class LSTM(nn.Module):
    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.token(x))[0])


def lstm() -> Workload:
    return Workload(LSTM(96, 192), tokens(24, 64, 96), predict_next, lambda p: torch.optim.Adam(p, 1e-3))


ALL: dict[str, Callable[[], Workload]] = {
    "mlp_small": mlp_small,
    "mlp_large": mlp_large,
    "gpt": gpt,
    "conv": conv,
    "lstm": lstm,
    "llama_like": llama_like,
}
