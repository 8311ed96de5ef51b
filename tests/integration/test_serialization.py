"""torch.save and torch.load: what is written on the device loads anywhere, this package or not."""

from __future__ import annotations

import io
import pickle

import pytest
import torch

from support import scripts


def saved(value: object, **options: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


def test_the_file_is_the_cpus(device: str) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    assert saved(x.to(device)).getvalue() == saved(x).getvalue()


def test_loads_to_the_cpu_unless_told(device: str) -> None:
    file = saved({"x": torch.arange(3, device=device)})
    assert torch.load(file)["x"].device.type == "cpu"
    for where in (device, torch.device(device), {"cpu": device}, lambda storage, location: storage.sinter()):
        file.seek(0)
        loaded = torch.load(file, map_location=where)["x"]
        assert loaded.device == torch.device(device, 0) and loaded.tolist() == [0, 1, 2]


def test_a_cpu_checkpoint_loads_to_the_device(device: str) -> None:
    assert torch.load(saved(torch.ones(2)), map_location=device).device.type == device


def test_pending_tensors_are_run_first(device: str) -> None:
    x = torch.ones(4, device=device)
    for _ in range(5):
        x = x * 2 + 1
    assert torch.load(saved(x)).tolist() == [63.0] * 4


def test_views_stay_views(device: str) -> None:
    base = torch.arange(10.0, device=device)
    loaded = torch.load(saved([base, base[2:5], base[::2]]), map_location=device)
    loaded[0].zero_()
    assert loaded[1].tolist() == [0.0] * 3 and loaded[2].tolist() == [0.0] * 5
    assert torch.load(saved([base[2:5]]))[0].untyped_storage().nbytes() == 40


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64])
def test_types(dtype: torch.dtype, device: str) -> None:
    x = torch.arange(4).to(dtype)
    assert torch.equal(torch.load(saved(x.to(device))), x)
    assert torch.equal(torch.load(saved(x.to(device), _use_new_zipfile_serialization=False)), x)


def test_parameters_and_conjugates(device: str) -> None:
    parameter = torch.nn.Parameter(torch.ones(2, device=device))
    loaded = torch.load(saved(parameter))
    assert isinstance(loaded, torch.nn.Parameter) and loaded.requires_grad
    x = torch.tensor([1 + 2j], device=device).conj()
    assert torch.load(saved(x)).resolve_conj().tolist() == [1 - 2j]


def test_model_and_optimizer_resume(device: str) -> None:
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).to(device)
        return model, torch.optim.AdamW(model.parameters(), 0.1)

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
        loss = model(torch.ones(4, 3, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    model, optimizer = make()
    step(model, optimizer)
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    want = [step(model, optimizer) for _ in range(3)]
    model, optimizer = make()
    checkpoint = torch.load(file)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert {value.device.type for value in optimizer.state[model.weight].values() if value.dim()} == {device}
    assert [step(model, optimizer) for _ in range(3)] == want


def test_checkpoints_cross_to_a_machine_without_the_package_and_back(tmp_path) -> None:
    there, back, pickled = (tmp_path / name for name in ("there.pt", "back.pt", "there.pkl"))
    scripts.run(
        """
        import pickle, sys, torch
        model = torch.nn.Linear(3, 2).to("sinter")
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 3, device="sinter")).sum().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "whole": model, "optimizer": optimizer.state_dict()}, sys.argv[1])
        pickle.dump(model.weight, open(sys.argv[2], "wb"))
        """,
        there,
        pickled,
    )
    outcome = scripts.run(
        """
        import pickle, sys, torch
        assert not hasattr(torch, "sinter")
        checkpoint = torch.load(sys.argv[1], weights_only=False)
        model = checkpoint["whole"]
        model.load_state_dict(checkpoint["model"])
        torch.optim.AdamW(model.parameters()).load_state_dict(checkpoint["optimizer"])
        assert torch.equal(pickle.load(open(sys.argv[3], "rb")), model.weight)
        torch.save(model.state_dict(), sys.argv[2])
        torch.load(sys.argv[2])
        print(model.weight.device, model(torch.ones(1, 3)).shape)
        """,
        there,
        back,
        pickled,
        installed=False,
    )
    assert outcome.lines == ["cpu torch.Size([1, 2])"]
    model = torch.nn.Linear(3, 2).to("sinter")
    model.load_state_dict(torch.load(back))
    assert torch.equal(model.weight.cpu(), torch.load(there, weights_only=False)["model"]["weight"])


def test_a_model_that_is_used_after_saving_is_unchanged(device: str) -> None:
    x = torch.ones(3, device=device)
    saved(x)
    x.add_(1)
    assert x.tolist() == [2.0] * 3


def test_pickle_goes_to_the_cpu_as_well(device: str) -> None:
    x = torch.ones(2, device=device)
    assert pickle.loads(pickle.dumps(x)).device.type == "cpu"
    assert pickle.loads(pickle.dumps(x)).tolist() == [1.0, 1.0]


def test_mmap_load(device: str, tmp_path) -> None:
    torch.save(torch.arange(4.0, device=device), tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", mmap=True).to(device).tolist() == [0.0, 1.0, 2.0, 3.0]
