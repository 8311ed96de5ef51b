"""Recurrent networks: the same kernels as eager on the CPU, so the same bits in values, gradients and second gradients."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from support import device as under_test
from support.compare import differences

pytestmark = pytest.mark.lazy

STEPS, BATCH, SIZE, HIDDEN = 7, 5, 6, 8


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LSTM with projections")
        yield


def leaves(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, PackedSequence):
        yield tree.data
    elif isinstance(tree, torch.Tensor):
        yield tree
    elif tree is not None:
        for part in tree:
            yield from leaves(part)


def moved(tree: Any, device: str) -> Any:
    if isinstance(tree, PackedSequence):
        return tree._replace(data=moved(tree.data, device))  # lengths stay on the host, indices are not used here
    if isinstance(tree, torch.Tensor):
        copied = tree.detach().to(device)
        return copied.requires_grad_(tree.requires_grad)
    return None if tree is None else type(tree)(moved(part, device) for part in tree)


def outcome(module: nn.Module, inputs: tuple[Any, ...], second: bool = False) -> list[torch.Tensor]:
    """Outputs, gradients of inputs and parameters, and optionally gradients of a function of those gradients."""
    outputs = list(leaves(module(*inputs)))
    results = [t.detach() for t in outputs]
    wanted = [t for t in (*leaves(inputs), *module.parameters()) if t.requires_grad]
    if not wanted or not outputs[0].requires_grad:
        return results
    # different weights, so that no output's gradient can stand for another's
    loss = sum((t.float() * (i + 1)).pow(2).sum() for i, t in enumerate(outputs))
    grads = torch.autograd.grad(loss, wanted, create_graph=second, allow_unused=True)
    results += [g.detach() for g in grads if g is not None]
    if second:
        of_grads = sum((g * g).sum() for g in grads if g is not None)
        again = torch.autograd.grad(of_grads, wanted, allow_unused=True)
        results += [g for g in again if g is not None]
    return results


def check(module: nn.Module, *inputs: Any, second: bool = False, device: str) -> None:
    want = outcome(module, inputs, second)
    twin = copy.deepcopy(module).to(device)
    got = outcome(twin, moved(inputs, device), second)
    assert all(t.device.type == "sinter" for t in got)
    assert len(want) == len(got)
    assert not differences(want, got)


def batch(batch_first: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    shape = (BATCH, STEPS, SIZE) if batch_first else (STEPS, BATCH, SIZE)
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def initial(module: nn.Module, size: int = BATCH) -> Any:
    rows = module.num_layers * (2 if module.bidirectional else 1)
    dtype = module.weight_ih_l0.dtype
    h = torch.randn(rows, size, getattr(module, "proj_size", 0) or HIDDEN, dtype=dtype, requires_grad=True)
    return (h, torch.randn(rows, size, HIDDEN, dtype=dtype, requires_grad=True)) if module.mode == "LSTM" else h


KINDS = [
    pytest.param(nn.LSTM, {}, id="LSTM"),
    pytest.param(nn.LSTM, {"proj_size": 3}, id="LSTM with projection"),
    pytest.param(nn.GRU, {}, id="GRU"),
    pytest.param(nn.RNN, {}, id="RNN tanh"),
    pytest.param(nn.RNN, {"nonlinearity": "relu"}, id="RNN relu"),
]


@pytest.mark.parametrize("bias", [True, False], ids=["", "no bias"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["", "both ways"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True], ids=["", "batch first"])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_whole_batches(kind, more, batch_first: bool, layers: int, bidirectional: bool, bias: bool, device: str):
    module = kind(SIZE, HIDDEN, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional, **more)
    check(module, batch(batch_first), device=device)
    check(module, batch(batch_first), initial(module), device=device)


@pytest.mark.parametrize("lengths", [[7, 5, 5, 2, 1], [7, 7, 7, 7, 7], [1, 1, 1, 1, 1]], ids=str)
@pytest.mark.parametrize("bidirectional", [False, True], ids=["", "both ways"])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_packed_sequences(kind, more, bidirectional: bool, lengths: list[int], device: str):
    module = kind(SIZE, HIDDEN, 2, bidirectional=bidirectional, **more)
    packed = pack_padded_sequence(torch.randn(STEPS, BATCH, SIZE), torch.tensor(lengths))
    packed = packed._replace(data=packed.data.detach().requires_grad_())
    check(module, packed, device=device)
    check(module, packed, initial(module), device=device)


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_packing_on_the_device(kind, more, device: str):
    """Lengths in any order: packing sorts, the module puts the final states back in order."""
    module = kind(SIZE, HIDDEN, bidirectional=True, batch_first=True, **more)
    lengths = torch.tensor([3, 7, 1, 5, 5])
    results = []
    for where in ("cpu", device):
        torch.manual_seed(1)
        x = torch.randn(BATCH, STEPS, SIZE).to(where).requires_grad_()
        twin = copy.deepcopy(module).to(where)
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        assert packed.batch_sizes.device.type == "cpu"
        assert packed.data.device.type == torch.device(where).type
        output, hidden = twin(packed)
        padded, back = pad_packed_sequence(output, batch_first=True)
        assert torch.equal(back, lengths)
        (padded.square().sum() + sum(h.square().sum() for h in leaves(hidden))).backward()
        results.append(
            [padded.detach(), *(h.detach() for h in leaves(hidden)), x.grad, *(p.grad for p in twin.parameters())]
        )
    assert not differences(*results)


@pytest.mark.parametrize("lengths", [None, [7, 4, 2, 2, 1]], ids=["whole", "packed"])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_second_gradients(kind, more, lengths: list[int] | None, device: str):
    module = kind(SIZE, HIDDEN, bidirectional=True, **more)
    x = batch()
    if lengths:
        x = pack_padded_sequence(x.detach(), torch.tensor(lengths))
        x = x._replace(data=x.data.detach().requires_grad_())
    check(module, x, initial(module), second=True, device=device)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_dtypes(kind, more, dtype: torch.dtype, device: str):
    module = kind(SIZE, HIDDEN, 2, **more).to(dtype)
    check(module, batch(dtype=dtype), initial(module), device=device)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_without_gradients(kind, more, mode, device: str):
    module = kind(SIZE, HIDDEN, 2, **more)
    x, h = batch().detach(), initial(module)
    with mode():
        check(module, x, h, device=device)


def test_gradients_on_and_off_share_no_plan_of_the_kernel(device: str):
    """oneDNN's kernel returns a workspace when gradients are recorded: it asks while it runs, long after the call."""
    module = nn.LSTM(SIZE, HIDDEN).to(device)
    x = torch.randn(STEPS, BATCH, SIZE, device=device)
    for _ in range(2):
        with torch.no_grad():
            quiet = module(x)[0]
        loud = module(x)[0]
        with torch.no_grad():
            assert torch.equal(quiet.cpu(), loud.cpu())  # runs both, gradients off
        loud.sum().backward()
        with torch.no_grad():
            quiet = module(x)[0]
        loud = module(x)[0]
        assert torch.equal(quiet.cpu(), loud.cpu())  # runs both, gradients on


@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_dropout_between_layers(kind, more, packed: bool, device: str):
    module = kind(SIZE, HIDDEN, 3, dropout=0.5, **more).to(device)
    x: Any = torch.randn(STEPS, BATCH, SIZE, device=device)
    if packed:
        x = pack_padded_sequence(x, torch.tensor([7, 5, 5, 2, 1]))
    host = torch.get_rng_state()
    torch.sinter.manual_seed(0)
    first, second = (next(leaves(module(x))).cpu() for _ in range(2))
    torch.sinter.manual_seed(0)
    again = next(leaves(module(x))).cpu()
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), host)
    module.eval()
    quiet = [next(leaves(module(x))).cpu() for _ in range(2)]
    assert torch.equal(*quiet)
    want = next(leaves(copy.deepcopy(module).cpu()(moved(x, "cpu")))).detach()
    assert torch.equal(quiet[0], want)


@pytest.mark.exact
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["whole", "packed"])
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_autocast(kind, more, packed: bool, dtype: torch.dtype, device: str):
    module = kind(SIZE, HIDDEN, 2, bidirectional=True, **more)
    x: Any = torch.randn(STEPS, BATCH, SIZE)
    if packed:
        x = pack_padded_sequence(x, torch.tensor([7, 5, 5, 2, 1]))
    twin = copy.deepcopy(module).to(device)
    y = moved(x, device)
    try:
        with torch.autocast("cpu", dtype):
            want = list(leaves(module(x)))
    except RuntimeError as problem:  # oneDNN trains no LSTM in float16 on many machines
        words = str(problem).split(".")[0]
        with pytest.raises(RuntimeError, match=words), torch.autocast("sinter", dtype):
            next(leaves(twin(y))).cpu()
        return
    sum(t.float().square().sum() for t in want).backward()
    with torch.autocast("sinter", dtype):
        got = list(leaves(twin(y)))
    sum(t.float().square().sum() for t in got).backward()
    assert not differences([t.detach() for t in want], [t.detach() for t in got])
    assert not differences([p.grad for p in module.parameters()], [p.grad for p in twin.parameters()])


CELLS = [
    pytest.param(nn.LSTMCell, {}, id="LSTMCell"),
    pytest.param(nn.GRUCell, {}, id="GRUCell"),
    pytest.param(nn.RNNCell, {}, id="RNNCell tanh"),
    pytest.param(nn.RNNCell, {"nonlinearity": "relu"}, id="RNNCell relu"),
]


@pytest.mark.parametrize("bias", [True, False], ids=["", "no bias"])
@pytest.mark.parametrize(("kind", "more"), CELLS)
def test_cells(kind, more, bias: bool, device: str):
    cell = kind(SIZE, HIDDEN, bias=bias, **more)
    x = torch.randn(BATCH, SIZE, requires_grad=True)
    h = torch.randn(BATCH, HIDDEN, requires_grad=True)
    state = (h, torch.randn(BATCH, HIDDEN, requires_grad=True)) if kind is nn.LSTMCell else h
    check(cell, x, device=device)
    check(cell, x, state, second=True, device=device)
    with torch.no_grad():
        check(cell, x, state, device=device)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda d: nn.LSTMCell(4, 6).to(d)(torch.zeros(2, 5, device=d)),
        lambda d: nn.GRUCell(4, 6).to(d)(torch.zeros(2, 4, device=d), torch.zeros(3, 6, device=d)),
        lambda d: nn.LSTMCell(4, 6).to(d)(
            torch.zeros(2, 4, device=d), (torch.zeros(2, 6, device=d), torch.zeros(2, 7, device=d))
        ),
        lambda d: torch.gru_cell(*(torch.zeros(s, device=d) for s in ((2, 4), (2, 6), (12, 4), (18, 6)))),
        lambda d: torch.lstm_cell(torch.zeros(2, 4, device=d), [torch.zeros(2, 6, device=d)], *(torch.zeros(s, device=d) for s in ((24, 4), (24, 6)))),
        lambda d: nn.LSTM(4, 6, proj_size=2).to(d)(torch.zeros(0, 2, 4, device=d)),
        lambda d: nn.GRU(4, 6).to(d)(torch.zeros(0, 2, 4, device=d)),
        lambda d: nn.GRU(4, 6).to(d)(torch.zeros(3, 2, 5, device=d)),
        lambda d: torch.gru(torch.zeros(3, 2, 4, device=d), torch.zeros(1, 2, 6, device=d), [torch.zeros(18, 4, device=d)] * 3, True, 1, 0.0, False, False, False),
        lambda d: torch.gru(torch.zeros(3, 2, 4, device=d), torch.zeros(2, 2, 6, device=d), [torch.zeros(s, device=d) for s in ((18, 4), (18, 6), 18, 18)], True, 1, 0.0, False, False, False),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_pytorchs_words(wrong, device: str):
    with pytest.raises(Exception) as want:
        wrong("cpu")
    with pytest.raises(type(want.value)) as got:
        wrong(device)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def test_mixed_devices_are_refused(device: str):
    with pytest.raises(RuntimeError, match="not at the same device"):
        nn.GRU(4, 6)(torch.zeros(3, 2, 4, device=device), torch.zeros(1, 2, 6, device=device))


@pytest.mark.parametrize("conditions", ["default", "without oneDNN"])
def test_the_path_is_eagers(conditions: str, device: str):
    """Counts oneDNN's layers in the recorded graph, and follows the user's switch."""
    module = nn.LSTM(SIZE, HIDDEN, 2, bidirectional=True).to(device)
    x = torch.randn(STEPS, BATCH, SIZE, device=device)
    under_test.sync()
    with torch.backends.mkldnn.flags(enabled=conditions == "default"):
        module(x)
        text = torch.ops.sinter._open_graph_text()
        assert text.count("mkldnn_rnn_layer") == (4 if conditions == "default" else 0)
        assert ("sigmoid_" in text) == (conditions != "default")
        check(copy.deepcopy(module).cpu(), torch.randn(STEPS, BATCH, SIZE), device=device)


@pytest.mark.exact
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_training_is_recorded_whole_and_equal(kind, more, device: str):
    """Ten steps of SGD: losses and weights to the bit, nothing run at once."""
    module = kind(SIZE, HIDDEN, 2, **more)
    twin = copy.deepcopy(module).to(device)
    x, y = torch.randn(STEPS, BATCH, SIZE), torch.randn(STEPS, BATCH, 3 if more.get("proj_size") else HIDDEN)
    losses: dict[str, list[float]] = {}
    for where, net in (("cpu", module), (device, twin)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
        a, b = x.to(where), y.to(where)
        losses[where] = []
        for step in range(10):
            before = under_test.counter("ops_run_now")
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(a)[0], b)
            loss.backward()
            optimizer.step()
            if step > 2:
                assert under_test.counter("ops_run_now") == before
            losses[where].append(loss.item())
    assert losses["cpu"] == losses[device]
    assert not differences(list(module.parameters()), list(twin.parameters()))


def test_flatten_parameters_and_copies(device: str):
    module = nn.LSTM(SIZE, HIDDEN).to(device)
    module.flatten_parameters()
    x = torch.randn(STEPS, BATCH, SIZE, device=device)
    assert torch.equal(module(x)[0], copy.deepcopy(module)(x)[0])
