"""A script that never asks for the device runs as if this package were not installed: same output, same warnings."""

from __future__ import annotations

import textwrap

import pytest

from support import scripts

SCRIPTS = {
    "accelerator": """
        import torch
        accelerator = torch.accelerator
        print(accelerator.is_available(), accelerator.current_accelerator(), accelerator.device_count())
        print(torch._C._get_accelerator(), torch.get_device_module().__name__)
        for use in ("current_device_index", "synchronize", "current_stream", "memory_allocated", "empty_cache"):
            try:
                print(getattr(accelerator, use)())
            except RuntimeError as error:
                print(error)
    """,
    "random": """
        import torch
        torch.manual_seed(7)
        with torch.random.fork_rng():
            torch.rand(3)
        print(torch.rand(2).tolist(), torch.initial_seed(), torch.get_rng_state().sum().item())
        torch.seed()
    """,
    "dataloader pins nothing": """
        import warnings, torch
        from torch.utils.data import DataLoader, TensorDataset
        warnings.simplefilter("always")
        if __name__ == "__main__":
            with warnings.catch_warnings(record=True) as caught:
                for workers in (0, 2):
                    loader = DataLoader(TensorDataset(torch.arange(8.0)), 4, pin_memory=True, num_workers=workers)
                    for (batch,) in loader:
                        print(batch.tolist(), batch.is_pinned())
            print(sorted({str(warning.message) for warning in caught}))
    """,
    "process group without a backend": """
        import os, torch, torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
        x = torch.ones(2)
        dist.all_reduce(x)
        print(x.tolist(), dist.get_backend(), dist.get_backend_config())
        dist.destroy_process_group()
    """,
    "backward before and after a fork": """
        import os, torch
        def train():
            x = torch.ones(3, requires_grad=True)
            (x * x).sum().backward()
            return x.grad.tolist()
        print(train(), flush=True)
        child = os.fork()
        if child == 0:
            print(train(), flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """,
    "checkpoint": """
        import torch
        from torch.utils.checkpoint import checkpoint
        torch.manual_seed(0)
        x = torch.ones(64, requires_grad=True)
        checkpoint(torch.nn.functional.dropout, x, use_reentrant=False).sum().backward()
        print(x.grad.sum().item())
    """,
    "profiler": """
        import warnings, torch
        warnings.simplefilter("always")
        with warnings.catch_warnings(record=True) as caught, torch.profiler.profile() as profile:
            torch.ones(3).sum().item()
        print(sorted({event.name for event in profile.events()}), [str(w.message) for w in caught])
        print(profile.key_averages().table().splitlines()[1].split())
    """,
    "pin_memory is refused": """
        import torch
        try:
            torch.ones(2).pin_memory()
        except RuntimeError:
            print("refused")
        print(torch.ones(2).is_pinned())
    """,
    "training": """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(3):
                loss = model(torch.ones(2, 4)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(loss.item(), model)
    """,
    "saving and copying": """
        import copy, io, pickle, torch
        x = torch.arange(3.0)
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        print(torch.load(file), pickle.loads(pickle.dumps(x)), copy.deepcopy(x), torch.from_dlpack(x))
    """,
    "fake tensors": """
        import torch
        from torch._subclasses import FakeTensorMode
        with FakeTensorMode():
            print(torch.ones(2) + 1)
    """,
    "compile": """
        import torch
        from torch._inductor.codegen.common import init_backend_registration
        init_backend_registration()
        print(torch.compile(lambda x: (x.sin() + 1).sum(), backend="aot_eager")(torch.zeros(3)).item())
    """,
}

_LOADED = """
import sys
print("loaded" if "torch_sinter" in sys.modules else "not loaded")
"""


def without_times(stderr: str) -> list[str]:
    """The profiler's own log lines carry the time and the process."""
    return [line for line in stderr.splitlines() if not line.startswith(("USDT:", "ERROR:"))]


@pytest.fixture(scope="module")
def outcomes() -> tuple[dict[str, scripts.Outcome], dict[str, scripts.Outcome]]:
    """Of each script, with the package and without."""
    sources = {name: textwrap.dedent(source) + _LOADED for name, source in SCRIPTS.items()}
    return scripts.run_each(sources), scripts.run_each(sources, installed=False)


@pytest.mark.parametrize("name", SCRIPTS)
def test_output_is_the_same(name: str, outcomes: tuple[dict, dict]) -> None:
    ours, stock = (outcome[name] for outcome in outcomes)
    assert stock.returncode == 0, stock.stderr
    assert ours.lines[-1:] == ["not loaded"], ours.stderr
    assert (ours.returncode, ours.stdout) == (stock.returncode, stock.stdout)
    assert without_times(ours.stderr) == without_times(stock.stderr)


def test_transformers_trainer_on_cpu_with_its_default_pinning() -> None:
    outcome = scripts.run(
        """
        import sys, tempfile, warnings, torch
        from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
        torch.manual_seed(0)
        model = BertForSequenceClassification(BertConfig(
            vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
        data = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(8)]
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(folder, max_steps=2, report_to=[], disable_tqdm=True, save_strategy="no")
            assert arguments.dataloader_pin_memory
            trainer = Trainer(model, arguments, train_dataset=data)
            trainer.train()
        print(trainer.state.global_step, next(model.parameters()).device, "torch_sinter" in sys.modules)
        """
    )
    assert outcome.lines[-1] == "2 cpu False"


def test_import_torch_costs_next_to_nothing() -> None:
    """The time of the entry point itself, in a process that has just imported torch; 0.15 s is the promise."""
    source = """
        import time, torch
        start = time.perf_counter()
        import torch_sinter_autoload
        torch_sinter_autoload._autoload()
        print(time.perf_counter() - start)
    """
    best = min(float(scripts.run(source, autoload=False).stdout) for _ in range(3))
    assert best < 0.03
