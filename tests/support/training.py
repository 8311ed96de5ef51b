"""Small training runs that several tests need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


def mlp(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def batch(seed: int, rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 16, generator=g), torch.randint(0, 4, (rows,), generator=g)


class Trainer:
    """A model with its optimizer on a device, and one step of training."""

    def __init__(
        self,
        device: str,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
        make: Callable[[], nn.Module] = mlp,
        **options: Any,
    ) -> None:
        self.device = device
        self.model = make().to(device)
        self.optimizer = optimizer(self.model.parameters(), **({"lr": 0.01} | options))

    def loss(self, seed: int, rows: int = 8) -> torch.Tensor:
        x, y = (t.to(self.device) for t in batch(seed, rows))
        return F.cross_entropy(self.model(x), y)

    def step(self, seed: int, rows: int = 8) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(seed, rows)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
