"""Matrix products of 32-bit floats: ours against PyTorch's, for the shapes of a linear layer's step.

    python bench/products.py [--rounds N]

For each layer (rows, inputs, outputs) the product of the forward pass, the one for the input's gradient and the one for
the weight's: GFLOP/s on sinter and on eager CPU, taking turns, the least time of each. Where the two are equal PyTorch's
kernel serves both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import machine

LAYERS = ((2048, 256, 768), (2048, 1024, 256), (512, 1024, 1024), (1024, 256, 688), (128, 256, 256), (128, 64, 256))
FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "forward": lambda x, w, g: x @ w.t(),
    "input's gradient": lambda x, w, g: g @ w,
    "weight's gradient": lambda x, w, g: g.t() @ x,
}


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print(machine.line())
    print(f"{'layer':>20} {'product':>18} {'eager':>7} {'sinter':>7} {'time ratio':>10}")
    for rows, inputs, outputs in LAYERS:
        host = (torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs))
        device = tuple(t.to("sinter") for t in host)
        for name, form in FORMS.items():

            def on_device(form=form, device=device) -> None:
                kept = form(*device)
                torch.sinter.synchronize()
                del kept

            eager, ours = [], []
            for _ in range(options.rounds):
                eager.append(seconds(lambda form=form, host=host: form(*host)))
                ours.append(seconds(on_device))
            rate = [2e-9 * rows * inputs * outputs / min(times) for times in (eager, ours)]
            layer = f"{rows}x{inputs}x{outputs}"
            print(f"{layer:>20} {name:>18} {rate[0]:7.0f} {rate[1]:7.0f} {min(ours) / min(eager):10.2f}")


if __name__ == "__main__":
    main()
