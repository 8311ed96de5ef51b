"""Training mistakes that people have reported of other compilers and devices, kept as programs that must come out as on the CPU.

Each builds its data on the CPU from a seed, so that both sides start alike. Values are compared to the bit; counts of graphs
where the report was about compiling again and again.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from support import compare
from support import device as under_test
from support.device import counted


def noise(seed: int, *size: int, low: float | None = None, high: float | None = None) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=g) if low is None else torch.empty(size).uniform_(low, high, generator=g)


def leaf(t: torch.Tensor) -> torch.Tensor:
    return t.detach().requires_grad_()


def seeded(make: Callable[[], nn.Module], device: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make().to(device)


def gradients(module: nn.Module) -> list[torch.Tensor]:
    found = [p.grad for p in module.parameters() if p.requires_grad]
    assert all(g is not None for g in found), "a parameter has no gradient"
    return found


def like_cpu(program: Callable[[str], Any]) -> None:
    found = compare.differences(program("cpu"), program(under_test.NAME))
    assert not found, "\n".join(found)


# ---------------------------------------------------------------------------------------------- wrong numbers


def test_the_second_equal_write_into_a_slice_counts() -> None:
    def program(device: str) -> torch.Tensor:
        def total(v: torch.Tensor) -> torch.Tensor:
            pot = torch.zeros_like(v)
            pot[:, 0] += v[:, 1].square()
            pot[:, 0] += v[:, 1].square()
            return (2 * pot).sum()

        return torch.func.grad(total)(noise(1, 4, 3).to(device))

    like_cpu(program)


def test_gradients_through_resizing_and_cropping() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x, w = leaf(noise(2, 2, 3, 7, 6).to(device)), leaf(noise(3, 5, 3, 3, 3).to(device))
        mask = (noise(4, 2, 5, 8, 7) > 0).to(device)
        big = F.interpolate(x, scale_factor=(1.5, 1.34), mode="bilinear", align_corners=False)[:, :, 1:9, :7]
        c = F.conv2d(big, w, padding=1)
        y = torch.where(mask, c, F.max_pool2d(c, 3, 1, 1))
        y.square().sum().backward()
        return [y, x.grad, w.grad]

    like_cpu(program)


def test_subnormal_numbers_survive_and_the_process_keeps_them() -> None:
    def program(device: str) -> torch.Tensor:
        return torch.full((50_000,), 0.3125).to(device) * 2.0**-125

    like_cpu(program)
    assert bool((torch.full((50_000,), 0.3125) * 2.0**-125 != 0).all())


@pytest.mark.parametrize("dtype", (torch.uint8, torch.int8, torch.int16))
@pytest.mark.parametrize("sign", (1, -1))
def test_extremes_of_long_rows_of_small_integers(dtype: torch.dtype, sign: int) -> None:
    """Rows longer than a vector whose numbers all lie on one side of zero."""
    if sign < 0 and not dtype.is_signed:
        pytest.skip("unsigned")
    host = (sign * torch.randint(5, 90, (3, 77), generator=torch.Generator().manual_seed(5))).to(dtype)
    like_cpu(lambda d: [f(host.to(d), 1) for f in (torch.amin, torch.amax, torch.argmin, torch.argmax, torch.sum)])


def test_gradient_of_the_base_of_scatters() -> None:
    def program(device: str) -> list[torch.Tensor]:
        a, b, c = leaf(noise(6, 6, 6).to(device)), leaf(noise(7, 6).to(device)), leaf(noise(8, 6, 2).to(device))
        y = torch.diagonal_scatter(a, b).exp().sum() + torch.slice_scatter(a, c, 1, 1, 3).exp().sum()
        (y + torch.select_scatter(a, b, 0, 2).exp().sum()).backward()
        return [a.grad, b.grad, c.grad]

    like_cpu(program)


def test_selecting_rows_of_a_convolution() -> None:
    rows = torch.tensor([0, 2, 5, 7])
    like_cpu(
        lambda d: torch.index_select(
            F.conv2d(noise(9, 1, 3, 5, 4).to(d), noise(10, 2, 3, 1, 4).to(d), padding=2), 2, rows.to(d)
        )
    )


def test_half_precision_products_and_sums_in_a_jacobian() -> None:
    def program(device: str) -> torch.Tensor:
        def f(x: torch.Tensor) -> torch.Tensor:
            return ((x.prod() + x) @ (x.sum() - x)).sum()

        return torch.func.jacfwd(f)((torch.arange(1, 5, dtype=torch.float16) / 4).reshape(2, 2).to(device))

    like_cpu(program)


@pytest.mark.parametrize("f", (F.mish, torch.log, torch.tanh, torch.logit, torch.erf, F.gelu), ids=lambda f: f.__name__)
def test_transcendental_functions_are_the_cpus(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    like_cpu(lambda d: f(noise(11, 5000, low=0.001, high=0.999).to(d)))


# ---------------------------------------------------------------------------------------------- graphs made again and again


@pytest.mark.lazy
def test_a_counter_on_a_module_makes_no_new_graphs() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(6, 6), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.layer(x).sigmoid() * self.calls

    net = seeded(Counting, under_test.NAME)
    x = noise(12, 2, 6).to(under_test.NAME)
    for _ in range(2):
        net(x).sum().item()
    _, rose = counted(lambda: [net(x).sum().item() for _ in range(15)], "graphs_planned")
    assert rose["graphs_planned"] == 0
    assert net.calls == 17


@pytest.mark.lazy
def test_a_value_read_in_each_layer() -> None:
    """Reads cut the model into pieces; the pieces repeat, and the numbers are right."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                h = layer(x).relu()
                x = x - h / (1 + h.max().item())
            return x

    def course(device: str) -> list[torch.Tensor]:
        net, x = seeded(Scaled, device), noise(13, 3, 5).to(device)
        for _ in range(4):
            net.zero_grad()
            net(x).square().mean().backward()
        return gradients(net)

    like_cpu(course)
    _, rose = counted(lambda: course(under_test.NAME), "graphs_planned")
    assert rose["graphs_planned"] <= 2


@pytest.mark.slow
@pytest.mark.lazy
def test_eager_speed_is_within_reach() -> None:
    """A single pointwise function over a quarter of a million numbers, read at once, costs about what eager takes."""
    x = noise(14, 1 << 18, low=0.01, high=0.99)
    moved = x.to(under_test.NAME)

    def best(f: Callable[[], torch.Tensor]) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            f().reshape(-1)[0].item()
            times.append(time.perf_counter() - start)
        return min(times)

    slack = float(os.environ.get("SINTER_TEST_SLACK", "4"))
    assert best(lambda: torch.tanh(moved)) < slack * best(lambda: torch.tanh(x)) + 1e-3


@pytest.mark.lazy
def test_no_compiler_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    like_cpu(lambda d: noise(15, 31).to(d).sigmoid() * 1.37 + noise(16, 31).to(d))


# ---------------------------------------------------------------------------------------------- precision


@pytest.mark.exact
def test_a_pass_without_gradients_first_inside_autocast() -> None:
    """The cache of lowered weights must not keep copies that no gradient reaches."""

    def program(device: str) -> list[torch.Tensor]:
        net = seeded(lambda: nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)), device)
        x = noise(17, 5, 6).to(device)
        with torch.autocast(device, torch.bfloat16):
            with torch.no_grad():
                target = net(x).float()
            loss = F.mse_loss(net(x * 0.5).float(), target)
        loss.backward()
        return [loss, *gradients(net)]

    like_cpu(program)


def test_clipping_under_a_gradient_scaler() -> None:
    def program(device: str, scaled: bool) -> torch.Tensor:
        net = seeded(lambda: nn.Linear(4, 2), device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.25, foreach=False)
        scaler = torch.amp.GradScaler(device, init_scale=512.0, enabled=scaled)
        for step in range(4):
            optimizer.zero_grad()
            loss = (net(noise(20 + step, 6, 4).to(device)) * 40).square().mean()
            loss = loss * float("inf") if step == 1 else loss  # an overflow is skipped
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            if scaled or step != 1:
                scaler.step(optimizer)
            scaler.update()
        return net.weight.detach().cpu()

    scaled = program(under_test.NAME, True)
    assert torch.isfinite(scaled).all()
    torch.testing.assert_close(scaled, program(under_test.NAME, False), rtol=0, atol=1e-5)
    like_cpu(lambda d: program(d, True))


# ---------------------------------------------------------------------------------------------- recomputing, accumulating


def test_recomputed_dropout_drops_the_same() -> None:
    torch.manual_seed(30)
    x = leaf(torch.ones(8, 8, 64).to(under_test.NAME))
    y = checkpoint(lambda t: F.dropout(t.mT.contiguous(), 0.4), x, use_reentrant=False)
    y.sum().backward()
    kept, flown = (y != 0).cpu(), (x.grad != 0).cpu().mT
    assert torch.equal(kept, flown)
    assert abs(kept.float().mean().item() - 0.6) < 0.05
    fours = kept.reshape(-1, 4).sum(1)
    assert ((fours > 0) & (fours < 4)).float().mean() > 0.6, "neighbours share their fate"


def test_accumulated_sums_equal_one_batch() -> None:
    ids = torch.randint(20, (6, 9), generator=torch.Generator().manual_seed(31))
    labels = ids.roll(-1, 1)
    for row, length in enumerate((1, 9, 4, 2, 7, 5)):
        labels[row, length:] = -100

    def program(device: str, parts: int) -> list[torch.Tensor]:
        net = seeded(lambda: nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 20)), device)
        count = int((labels != -100).sum())
        for i, l in zip(ids.chunk(parts), labels.chunk(parts), strict=True):
            out = net(i.to(device)).flatten(0, 1)
            (F.cross_entropy(out, l.to(device).flatten(), ignore_index=-100, reduction="sum") / count).backward()
        return [g.cpu() for g in gradients(net)]

    for a, b in zip(program(under_test.NAME, 1), program(under_test.NAME, 3), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    like_cpu(lambda d: program(d, 3))


# ---------------------------------------------------------------------------------------------- views, copies, checkpoints


def test_views_alias_both_ways_and_data_detaches() -> None:
    def program(device: str) -> list[torch.Tensor]:
        base = torch.zeros(4, 4).to(device)
        row, column = base[1], base.t()[2]
        row.add_(1)
        column.mul_(3).add_(2)
        base.fill_diagonal_(9)
        w = leaf(noise(32, 3).to(device))
        y = w * 2
        w.data.add_(1)
        y.sum().backward()
        alias = base.view(-1)[5:]
        alias[::3] = -1
        return [base, row, column, alias, w, w.grad]

    like_cpu(program)


def test_an_averaged_copy_beside_training() -> None:
    def program(device: str) -> list[torch.Tensor]:
        layers = lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 1, 1))  # noqa: E731
        net, x = seeded(layers, device), noise(33, 3, 2, 6, 6).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
        net(x).square().mean().backward()
        average = copy.deepcopy(net).eval().requires_grad_(False)
        for step in range(3):
            optimizer.zero_grad()
            net(x - 0.2 * step).square().mean().backward()
            optimizer.step()
            for a, p in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
                if a.is_floating_point():
                    a.lerp_(p.detach(), 0.25)
        net.eval()
        with torch.no_grad():
            return [average(x), net(x), average[1].running_var, net[1].num_batches_tracked]

    like_cpu(program)


def test_a_checkpoint_has_the_plain_names_and_loads_on_the_cpu(tmp_path) -> None:
    layers = lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))  # noqa: E731
    net, x = seeded(layers, under_test.NAME), noise(34, 3, 5)
    before = list(net.parameters())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        net(x.to(under_test.NAME)).square().mean().backward()
        optimizer.step()
    torch.save(net.state_dict(), tmp_path / "net.pt")
    resumed = seeded(layers, "cpu", seed=99)
    resumed.load_state_dict(torch.load(tmp_path / "net.pt", map_location="cpu"), strict=True)
    assert torch.equal(resumed(x), net(x.to(under_test.NAME)).cpu())
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))


def test_tied_weights_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

    net = Tied()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    weight = net.embed.weight
    net.to(under_test.NAME)
    assert net.head.weight is net.embed.weight is weight
    net.head(net.embed(torch.tensor([1]).to(under_test.NAME))).sum().backward()
    before = weight.detach().cpu()
    optimizer.step()
    assert not torch.equal(weight.detach().cpu(), before)


def test_a_transformer_encoder_with_padding_evaluates() -> None:
    """PyTorch would make a nested tensor of the batch, which the device does not have. Padded places are nobody's."""

    def build() -> nn.Module:
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()

    x, padding = noise(35, 2, 6, 16), torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
    with torch.no_grad():
        want = seeded(build, "cpu")(x, src_key_padding_mask=padding)
        got = seeded(build, under_test.NAME)(
            x.to(under_test.NAME), src_key_padding_mask=padding.to(under_test.NAME)
        ).cpu()
    torch.testing.assert_close(got[~padding], want[~padding])


@pytest.mark.parametrize("kind", (torch.optim.Adam, torch.optim.NAdam, torch.optim.Adagrad, torch.optim.RMSprop))
def test_a_bad_batch_does_not_count_as_a_step(kind: type[torch.optim.Optimizer]) -> None:
    """Bias corrections of later steps depend on how many there were."""

    def run(device: str) -> list[torch.Tensor]:
        net = seeded(lambda: nn.Linear(3, 3), device)
        optimizer = kind(net.parameters(), lr=0.1, foreach=False)
        for i in range(5):
            target = torch.tensor([0, 9 if i == 2 else 1]).to(device)
            try:
                optimizer.zero_grad()
                F.cross_entropy(net(torch.ones(2, 3).to(device)), target).backward()
                optimizer.step()
            except IndexError:
                assert i == 2
        return [parameter.detach().cpu() for parameter in net.parameters()]

    for want, got in zip(run("cpu"), run(under_test.NAME), strict=True):
        assert torch.equal(want, got)
