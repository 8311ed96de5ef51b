"""Trains a small convolutional image classifier on scikit-learn's digits (1,797 images of 8x8 pixels).

    python examples/train_digits.py --device sinter --steps 300

Plain PyTorch: the device string is the only thing that changes between the CPU and sinter. Every fifth image is kept for the test.
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

BATCH = 128


def read_images():
    """Images in 0..1 with one channel and their classes, for training and for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    classes = torch.tensor(digits.target)
    test = torch.arange(len(images)) % 5 == 0
    return images[~test], classes[~test], images[test], classes[test]


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(2 * width, 10)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))


def build():
    torch.manual_seed(0)
    return Net()


def train(model, device, steps, data=None):
    """Trains the model on `device` and yields the loss of each step."""
    images, classes, _, _ = data or read_images()
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for step in range(steps):
        chosen = torch.randint(len(images), (BATCH,), generator=torch.Generator().manual_seed(step))
        x, y = images[chosen].to(device), classes[chosen].to(device)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()


@torch.no_grad()
def accuracy(model, device, data=None):
    """The part of the test images that the model classifies rightly."""
    _, _, images, classes = data or read_images()
    model.eval()
    guesses = model(images.to(device)).argmax(1)
    model.train()
    return (guesses == classes.to(device)).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="sinter")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    model = build()
    start = time.perf_counter()
    for step, loss in enumerate(train(model, options.device, options.steps)):
        if step % 50 == 0 or step == options.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}  {time.perf_counter() - start:6.1f} s")
    print(f"test accuracy {accuracy(model, options.device):.3f}")


if __name__ == "__main__":
    main()
