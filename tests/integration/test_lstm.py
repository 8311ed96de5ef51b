"""Recurrent layers: LSTM keeps the layer-wise oneDNN path, and all equal the CPU."""

from __future__ import annotations

import pytest
import torch

from support import device as under_test

OPTIONS = [{}, {"num_layers": 2}, {"bidirectional": True}, {"batch_first": True, "bias": False}]


def run(
    kind: str, where: str, options: dict, train: bool = True, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(5, 6, **options).to(dtype)
    x = torch.randn(7, 3, 5, dtype=dtype)
    module.to(where)
    x = x.to(where).requires_grad_(train)
    with torch.set_grad_enabled(train):
        out, hidden = module(x)
    results = [out, *(hidden if isinstance(hidden, tuple) else (hidden,))]
    if train:
        sum(result.square().sum() for result in results).backward()
        results += [x.grad, *(parameter.grad for parameter in module.parameters())]
    return [result.detach().cpu() for result in results]


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_equals_the_cpu(kind: str, options: dict, train: bool, device: str) -> None:
    for want, got in zip(run(kind, "cpu", options, train), run(kind, device, options, train), strict=True):
        assert torch.equal(want, got), (want - got).abs().max()


def test_lstm_is_a_call_a_layer(device: str) -> None:
    run("LSTM", device, {})
    _, counts = under_test.counted(lambda: run("LSTM", device, {}, train=False), "library_calls", "ops_recorded")
    assert counts["library_calls"] < 30  # 7 time steps of single ops would be more than 50


def test_packed_sequences(device: str) -> None:
    def packed(where: str) -> torch.Tensor:
        torch.manual_seed(0)
        module = torch.nn.LSTM(3, 4)
        sequences = [torch.randn(length, 3) for length in (2, 5, 3)]
        module.to(where)
        batch = torch.nn.utils.rnn.pack_sequence([s.to(where) for s in sequences], enforce_sorted=False)
        out, _ = module(batch)
        padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(out)
        assert lengths.tolist() == [2, 5, 3]
        return padded.detach().cpu()

    torch.testing.assert_close(packed(device), packed("cpu"))


def test_cells(device: str) -> None:
    for kind in ("LSTMCell", "GRUCell", "RNNCell"):
        torch.manual_seed(0)
        cell = getattr(torch.nn, kind)(3, 4)
        x = torch.randn(2, 3)
        want = torch.utils._pytree.tree_leaves(cell(x))
        got = torch.utils._pytree.tree_leaves(cell.to(device)(x.to(device)))
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b.cpu(), a)
