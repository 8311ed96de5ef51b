"""Autocast on the device is the CPU's autocast: the same types reach every kernel, and training gives the same bits."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import custom_bwd, custom_fwd

from support import device as under_test
from support.compare import differences

pytestmark = pytest.mark.lazy

LOW = (torch.bfloat16, torch.float16)


def _probe(device: str) -> list[dict[str, Any]]:
    script = under_test.ROOT / "tests" / "support" / "autocast_probe.py"
    done = subprocess.run([sys.executable, str(script), device], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def probed() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    return _probe("cpu"), _probe("sinter")


def test_every_op_gets_the_types_that_the_cpus_autocast_gives_it(probed):
    on_cpu, on_device = probed
    wrong = [
        (want["op"], setting, inputs, on_host, got)
        for want, row in zip(on_cpu, on_device, strict=True)
        for setting in want
        if setting != "op"
        for inputs, (on_host, got) in enumerate(zip(want[setting], row[setting], strict=True))
        if on_host != got
    ]
    assert not wrong


def test_the_probe_sees_all_policies(probed):
    """Guards the comparison above: a probe that saw nothing would find no difference."""
    on_cpu, _ = probed
    seen = {row["op"]: row["torch.bfloat16"] for row in on_cpu}
    assert len(seen) > 100
    assert seen["aten::linear"][0] == ["bfloat16"] * 3  # lower precision
    assert seen["aten::linear"][3] == ["float64"] * 3  # doubles are left alone
    assert seen["aten::mse_loss"][1] == ["float32"] * 2  # float32
    assert seen["aten::cat"][1] == ["bfloat16"] * 2  # the widest
    assert seen["aten::cat"][6] == ["float32"] * 2
    assert not [row for row in seen.values() if any(isinstance(r, str) and "reached" in r for r in row)]


def test_no_further_op_is_cast_on_the_device():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    ops = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]
    assert [n for n in ops if has(n, "AutocastPrivateUse1") != has(n, "AutocastCPU")] == []


# ---------------------------------------------------------------- the context manager


def types(device: str) -> list[torch.dtype]:
    a, b = torch.ones(2, 2, device=device), torch.ones(2, 2, device=device)
    return [(a @ b).dtype, (a + b).dtype, torch.softmax(a @ b, 0).dtype, nn.functional.mse_loss(a @ b, b).dtype]


def test_the_default_type_is_the_cpus(device: str):
    with torch.autocast(device):
        assert types(device)[0] == torch.bfloat16
    with torch.autocast("cpu"):
        want = types("cpu")
    with torch.autocast(device):
        assert types(device) == want


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_nested_disabled_and_restored(dtype: torch.dtype, device: str):
    other = LOW[1 - LOW.index(dtype)]
    with torch.autocast(device, dtype):
        assert types(device)[0] == dtype
        with torch.autocast(device, other):
            assert types(device)[0] == other
            with torch.autocast(device, enabled=False):
                assert types(device) == [torch.float32] * 4
            assert types(device)[0] == other
        assert types(device)[0] == dtype
        assert types("cpu")[0] == torch.float32, "another device's autocast"
    assert types(device)[0] == torch.float32


def test_a_type_that_is_not_supported_warns_and_disables(device: str):
    with pytest.warns(UserWarning, match="target dtype is not supported"), torch.autocast(device, torch.float64):
        assert types(device)[0] == torch.float32


def test_the_exit_after_an_exception_restores(device: str):
    with pytest.raises(ZeroDivisionError), torch.autocast(device, torch.bfloat16):
        _ = 1 / 0
    assert not torch.is_autocast_enabled(device)


def casts(action) -> int:
    """How many copies of another type were recorded."""
    under_test.sync()
    action()
    return torch.ops.sinter._open_graph_text().count("aten::copy_")


def test_weights_are_cast_once_unless_the_cache_is_off(device: str):
    weight = torch.randn(4, 4, device=device, requires_grad=True)
    x = torch.randn(3, 4, device=device)

    def forward(cache: bool | None = None) -> None:
        with torch.autocast(device, torch.bfloat16, cache_enabled=cache):
            for _ in range(3):
                torch.mm(x, weight)

    assert casts(forward) == 3 + 1  # the input is no leaf that wants a gradient: cast each time
    assert casts(lambda: forward(False)) == 3 + 3
    assert casts(lambda: [forward(), forward()]) == 2 * (3 + 1)  # the cache ends with the context


def test_the_cached_cast_carries_gradients_and_sees_updates(device: str):
    weight = torch.randn(4, 4, requires_grad=True)
    twin = weight.detach().to(device).requires_grad_()
    x = torch.randn(3, 4)
    for where, w in (("cpu", weight), (device, twin)):
        for _ in range(2):
            with torch.autocast(where, torch.bfloat16):
                loss = (torch.mm(x.to(where), w) + torch.mm(x.to(where), w)).float().square().sum()
            loss.backward()
            with torch.no_grad():
                w.sub_(w.grad, alpha=0.1)
    assert not differences([weight.detach(), weight.grad], [twin.detach(), twin.grad])


# ---------------------------------------------------------------- custom_fwd, custom_bwd


def scaled(device: str, cast_inputs: torch.dtype | None) -> type[torch.autograd.Function]:
    class Scaled(torch.autograd.Function):
        seen: list[Any] = []  # noqa: RUF012

        @staticmethod
        @custom_fwd(device_type=device, cast_inputs=cast_inputs)
        def forward(ctx, x, w):
            Scaled.seen.append(("forward", x.dtype, torch.is_autocast_enabled(device)))
            ctx.save_for_backward(x, w)
            return x.mm(w)

        @staticmethod
        @custom_bwd(device_type=device)
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            Scaled.seen.append(("backward", grad.dtype, torch.is_autocast_enabled(device)))
            return grad.mm(w.t()), x.t().mm(grad)

    return Scaled


@pytest.mark.parametrize("cast_inputs", [None, torch.float32, torch.bfloat16], ids=str)
def test_custom_functions(cast_inputs: torch.dtype | None, device: str):
    torch.manual_seed(0)
    x, w = torch.randn(3, 4), torch.randn(4, 2)
    results, seen = [], []
    for where in ("cpu", device):
        function = scaled(where, cast_inputs)
        a, b = (t.detach().clone().to(where).requires_grad_() for t in (x, w))
        with torch.autocast(where, torch.bfloat16):
            out = function.apply(a, b)
        out.float().square().sum().backward()
        results.append([out.detach(), a.grad, b.grad])
        seen.append(function.seen)
    assert seen[0] == seen[1]
    assert not differences(*results)


# ---------------------------------------------------------------- training


class Mixture(nn.Module):
    """Convolution, normalisation, attention, losses: ops of all three policies and many of none."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.project = nn.Linear(8, 16)
        self.attend = nn.MultiheadAttention(16, 4, batch_first=True)
        self.layer_norm = nn.LayerNorm(16)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        x = self.project(x)
        attended, _ = self.attend(x, x, x, need_weights=False)
        x = torch.cat([self.layer_norm(x + attended), x], -1)
        return self.head(x.mean(1))


@pytest.mark.exact
@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_training_is_equal_to_the_cpus_to_the_bit(dtype: torch.dtype, device: str):
    torch.manual_seed(0)
    model = Mixture()
    twin = copy.deepcopy(model).to(device)
    x, y = torch.randn(4, 1, 6, 6), torch.randint(10, (4,))
    losses = []
    for where, net in (("cpu", model), (device, twin)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, foreach=False)
        scaler = torch.amp.GradScaler(where, enabled=dtype == torch.float16)
        a, b = x.to(where), y.to(where)
        history = []
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast(where, dtype):
                loss = nn.functional.cross_entropy(net(a), b)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            history.append(loss.detach())
        losses.append(history)
    assert not differences(*losses)
    assert not differences([p.detach() for p in model.parameters()], [p.detach() for p in twin.parameters()])
    assert losses[1][-1] < losses[1][0]


@pytest.mark.parametrize("enabled", [False, True])
def test_autocast_reaches_into_composites_as_on_the_cpu(enabled: bool, device: str):
    torch.manual_seed(0)
    a, b, weight, bias = torch.randn(6, 4), torch.randn(6, 5), torch.randn(3, 4, 5), torch.randn(3)
    results = []
    for where in ("cpu", device):
        with torch.autocast(where, torch.bfloat16, enabled=enabled):
            bilinear = nn.functional.bilinear(*(t.to(where) for t in (a, b, weight, bias)))
            results.append([bilinear, torch.linalg.pinv(a.to(where))])
    assert not differences(*results)
