"""safetensors reads addresses by itself: pending tensors must be there, and must not look tied to each other."""

from __future__ import annotations

import pytest
import torch

from support import scripts

safetensors = pytest.importorskip("safetensors.torch")


def test_pending_tensors(device: str, tmp_path) -> None:
    x = torch.arange(4.0, device=device)
    tensors = {"double": x * 2, "half": (x / 2).to(torch.bfloat16), "rows": (x + 1).reshape(2, 2)}
    safetensors.save_file(tensors, tmp_path / "x.safetensors")
    loaded = safetensors.load_file(tmp_path / "x.safetensors")
    assert {name: value.tolist() for name, value in loaded.items()} == {
        "double": [0.0, 2.0, 4.0, 6.0],
        "half": [0.0, 0.5, 1.0, 1.5],
        "rows": [[1.0, 2.0], [3.0, 4.0]],
    }
    assert loaded["half"].dtype == torch.bfloat16


def test_bytes_equal_the_cpus(device: str) -> None:
    x = torch.rand(3, 3)
    assert safetensors.save({"x": x.to(device)}) == safetensors.save({"x": x})


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.other = torch.nn.Linear(4, 4)


def test_tied_weights_are_found_and_no_others(device: str, tmp_path) -> None:
    model = Tied().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.other(model.head.weight).sum().backward()
    optimizer.step()
    path = tmp_path / "model.safetensors"
    safetensors.save_model(model, path)
    stored = safetensors.load_file(path)
    assert len(stored) == 3
    fresh = Tied().to(device)
    safetensors.load_model(fresh, path)
    assert fresh.head.weight is fresh.embedding.weight
    for (name, want), got in zip(model.state_dict().items(), fresh.state_dict().values(), strict=True):
        assert torch.equal(want.cpu(), got.cpu()), name


def test_tied_tensors_in_save_file_are_refused_as_on_the_cpu(device: str, tmp_path) -> None:
    x = torch.ones(4, device=device)
    with pytest.raises(RuntimeError, match="share memory"):
        safetensors.save_file({"a": x, "b": x[:2]}, tmp_path / "x.safetensors")


def test_loading_onto_the_device(device: str, tmp_path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"x": torch.arange(3.0)}, path)
    loaded = safetensors.load_file(path, device=device)["x"]
    assert loaded.device.type == device and loaded.tolist() == [0.0, 1.0, 2.0]
    assert safetensors.load_file(path, torch.device(device, 0))["x"].device.type == device
    assert safetensors.load_file(path)["x"].device.type == "cpu"
    model = torch.nn.Module()
    model.register_buffer("x", torch.zeros(3, device=device))
    safetensors.load_model(model, path, device=device)
    assert model.x.device.type == device and model.x.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("first", ["safetensors.torch", "torch_sinter"])
def test_either_may_be_imported_first(first: str, tmp_path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.save_file({"x": torch.arange(3.0)}, path)
    outcome = scripts.run(
        f"""
        import sys, {first}
        import torch
        torch.sinter.init()
        from safetensors.torch import load_file
        import safetensors.torch, inspect
        print(load_file(sys.argv[1], device="sinter")["x"].device, bool(inspect.getsource(safetensors.torch)))
        """,
        path,
    )
    assert outcome.lines == ["sinter:0 True"]
