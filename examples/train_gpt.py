"""Trains a character-level GPT on the sources of Python's own standard library.

    python examples/train_gpt.py --device sinter --steps 200

The text is read from the running interpreter, so every machine has it. The script is plain PyTorch: the device string is the only
thing that changes between the CPU and sinter. Dropout is 0 because random streams differ between devices by design, and without
it the losses of two devices can be compared step by step.
"""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

CONTEXT = 64
BATCH = 16
ALPHABET = "\n" + "".join(
    chr(code) for code in range(32, 127)
)  # printable ASCII; lines with anything else are left out


def read_text(limit=2_000_000):
    """The standard library's top-level modules, one after the other, as one tensor of character numbers."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    number = {char: i for i, char in enumerate(ALPHABET)}
    numbers = []
    for path in sorted(folder.glob("*.py")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            line = line.replace("\r\n", "\n").expandtabs(4)
            if all(char in number for char in line):
                numbers += [number[char] for char in line]
        if len(numbers) >= limit:
            break
    if len(numbers) < 100 * CONTEXT:
        raise SystemExit(f"train_gpt: no Python sources to train on in {folder}")
    return torch.tensor(numbers[:limit])


def sample(text, seed):
    """A batch of windows drawn from the text, and the same windows one character later."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)
    windows = text[starts[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width=128, layers=3, heads=4):
        super().__init__()
        self.token = nn.Embedding(len(ALPHABET), width)
        self.position = nn.Parameter(0.1 * torch.randn(CONTEXT, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(ALPHABET), bias=False)
        nn.init.normal_(self.token.weight, std=0.1)
        self.head.weight = self.token.weight  # tied, as in GPT-2

    def forward(self, tokens):
        x = self.token(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def build():
    torch.manual_seed(0)
    return GPT()


def train(model, device, steps, text=None):
    """Trains the model on `device` and yields the loss of each step."""
    text = read_text() if text is None else text
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-3)
    for step in range(steps):
        tokens, targets = (t.to(device) for t in sample(text, seed=step))
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


@torch.no_grad()
def write(model, device, start="def ", length=200):
    """Text that the model continues, the likeliest character at a time."""
    tokens = [ALPHABET.index(char) for char in start]
    for _ in range(length):
        logits = model(torch.tensor([tokens[-CONTEXT:]], device=device))
        tokens.append(int(logits[0, -1].argmax()))
    return "".join(ALPHABET[token] for token in tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="sinter")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    model = build()
    start = time.perf_counter()
    for step, loss in enumerate(train(model, options.device, options.steps)):
        if step % 20 == 0 or step == options.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}  {time.perf_counter() - start:6.1f} s")
    print(write(model, options.device))


if __name__ == "__main__":
    main()
