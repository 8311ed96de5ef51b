"""accelerate and transformers' Trainer, told to use the device: train, checkpoint, resume.

Each run is a process of its own, as the device is chosen when the framework is imported.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from support import compare, process
from support import device as under_test

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

ACCELERATE = """
import json, pathlib
from accelerate import Accelerator
from accelerate.utils import set_seed
from support.training import batch, mlp
from torch.utils.data import DataLoader, TensorDataset

folder = pathlib.Path({folder!r})

def prepared():
    set_seed(0)
    accelerator = Accelerator({options})
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    xs, ys = zip(*(batch(i) for i in range(8)))
    loader = DataLoader(TensorDataset(torch.cat(xs), torch.cat(ys)), batch_size=8)
    return accelerator, *accelerator.prepare(model, optimizer, loader, schedule)

def train(accelerator, model, optimizer, loader, schedule, steps):
    losses = []
    for step, (x, y) in zip(range(steps), loader):
        assert x.device.type == D, x.device
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step(); schedule.step(); optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    return losses

accelerator, *things = prepared()
assert accelerator.device.type == D, accelerator.device
losses = train(accelerator, *things, 4)
accelerator.save_state(str(folder / "state"))
after = train(accelerator, *things, 4)
accelerator.save_model(accelerator.unwrap_model(things[0]), str(folder / "model"))

accelerator, *things = prepared()
accelerator.load_state(str(folder / "state"))
assert train(accelerator, *things, 4) == after, "resumed training differs"
print("RESULT", json.dumps(losses + after))
"""

TRAINER = """
import json, pathlib, shutil
from models.test_transformers import gpt2, tokens
from transformers import Trainer, TrainingArguments

folder = pathlib.Path({folder!r})
g = torch.Generator().manual_seed(0)
rows = [{{"input_ids": ids, "labels": ids}} for ids in torch.randint(1, 60, (32, 12), generator=g)]

def trainer(name, **options):
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(folder / name), per_device_train_batch_size=4, max_steps=8, save_steps=4, logging_steps=1,
        report_to=[], seed=0, learning_rate=1e-3, eval_strategy="steps", eval_steps=4, **options)
    return Trainer(gpt2(), arguments, train_dataset=rows, eval_dataset=rows[:8])

whole = trainer("whole"{options})
assert whole.args.device.type == D, whole.args.device
whole.train()
assert next(whole.model.parameters()).device.type == D
losses = [row["loss"] for row in whole.state.log_history if "loss" in row]
evaluations = [row["eval_loss"] for row in whole.state.log_history if "eval_loss" in row]

resumed = trainer("resumed"{options})
resumed.train(resume_from_checkpoint=str(folder / "whole" / "checkpoint-4"))
again = [row["loss"] for row in resumed.state.log_history if "loss" in row]
assert again[-4:] == losses[-4:], (again, losses)
resumed.save_model(str(folder / "saved"))
out = resumed.model.generate(rows[0]["input_ids"][None].to(D), max_new_tokens=4, do_sample=False, pad_token_id=0)
print("RESULT", json.dumps([losses, evaluations, out.tolist()]))
"""


def result(script: str, device: str, folder: pathlib.Path, options: str) -> Any:
    folder.mkdir()
    chosen = {"ACCELERATE_TORCH_DEVICE": device, "SINTER_TEST_DEVICE": device}
    text = process.output(script.format(folder=str(folder), options=options), timeout=300, **chosen)
    return json.loads(next(line for line in text.splitlines() if line.startswith("RESULT")).removeprefix("RESULT"))


def flat(tree: Any) -> list[float]:
    return [x for part in tree for x in flat(part)] if isinstance(tree, list) else [tree]


@pytest.mark.parametrize("options", ("", "gradient_accumulation_steps=2"), ids=("plain", "accumulating"))
def test_accelerate(tmp_path: pathlib.Path, options: str) -> None:
    got = result(ACCELERATE, under_test.NAME, tmp_path / "device", options)
    assert compare.same_losses(flat(result(ACCELERATE, "cpu", tmp_path / "cpu", options)), flat(got))


@pytest.mark.exact
def test_accelerate_in_bfloat16(tmp_path: pathlib.Path) -> None:
    got = result(ACCELERATE, under_test.NAME, tmp_path / "device", "mixed_precision='bf16'")
    assert got == result(ACCELERATE, "cpu", tmp_path / "cpu", "mixed_precision='bf16'")


@pytest.mark.parametrize("options", ("", ", gradient_accumulation_steps=2"), ids=("plain", "accumulating"))
def test_trainer(tmp_path: pathlib.Path, options: str) -> None:
    """With the Trainer's own defaults: fused AdamW, pinned batches, checkpoints with generator states."""
    got = result(TRAINER, under_test.NAME, tmp_path / "device", options)
    want = result(TRAINER, "cpu", tmp_path / "cpu", options)
    assert flat(got) == pytest.approx(flat(want), rel=1e-5)
