"""Models of transformers with random weights: ten steps with the CPU's losses, and text generated token for token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from support import compare
from support import device as under_test
from support.device import counted

transformers = pytest.importorskip("transformers")

STEPS = 10


def gpt2() -> Any:
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 60}
    quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **quiet, bos_token_id=0, eos_token_id=None))


def bert() -> Any:
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 60,
    }
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**shape, **quiet, num_labels=3))


def llama() -> Any:
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 60,
    }
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **shape, num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=None
        )
    )


def t5() -> Any:
    shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 60}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(**shape, dropout_rate=0.0, decoder_start_token_id=0, eos_token_id=None)
    )


def vit() -> Any:
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**shape, **quiet, image_size=16, patch_size=4, num_labels=3)
    )


def tokens(g: torch.Generator) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, 60, (4, 12), generator=g)
    mask = torch.ones_like(ids)
    mask[1, 9:] = mask[3, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def with_labels(g: torch.Generator) -> dict[str, torch.Tensor]:
    found = tokens(g)
    return found | {"labels": found["input_ids"].masked_fill(found["attention_mask"] == 0, -100)}


MODELS: dict[str, tuple[Callable[[], Any], Callable[[torch.Generator], dict[str, torch.Tensor]]]] = {
    "gpt2": (gpt2, with_labels),
    "llama": (llama, with_labels),
    "t5": (t5, with_labels),
    "bert": (bert, lambda g: tokens(g) | {"labels": torch.randint(0, 3, (4,), generator=g)}),
    "vit": (
        vit,
        lambda g: {
            "pixel_values": torch.randn(4, 3, 16, 16, generator=g),
            "labels": torch.randint(0, 3, (4,), generator=g),
        },
    ),
}


@pytest.mark.parametrize("attention", ("sdpa", "eager"))
@pytest.mark.parametrize("name", MODELS)
def test_ten_steps(name: str, attention: str, device: str) -> None:
    make, batch = MODELS[name]

    def train(device: str) -> list[float]:
        torch.manual_seed(0)
        model = make()
        try:
            model.set_attn_implementation(attention)
        except ValueError:
            pytest.skip(f"{name} has no {attention} attention")
        model = model.to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        losses = []
        for step in range(STEPS):
            data = {key: t.to(device) for key, t in batch(torch.Generator().manual_seed(step)).items()}
            loss = model(**data).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return [loss.item() for loss in losses]

    assert compare.same_losses(train("cpu"), train(device))


@pytest.mark.parametrize("name", ("gpt2", "llama", "t5"))
@pytest.mark.parametrize("options", ({}, {"num_beams": 3}, {"use_cache": False}, {"repetition_penalty": 1.3}), ids=str)
def test_generated_text(name: str, options: dict[str, Any], device: str) -> None:
    make, _ = MODELS[name]

    def generate(device: str) -> list[list[int]]:
        torch.manual_seed(0)
        model = make().to(device).eval()
        data = {key: t.to(device) for key, t in tokens(torch.Generator().manual_seed(1)).items()}
        out = model.generate(**data, max_new_tokens=12, do_sample=False, pad_token_id=0, **options)
        return out.tolist()

    assert generate(device) == generate("cpu")


def test_sampled_text_repeats_by_seed(device: str) -> None:
    torch.manual_seed(0)
    model = gpt2().to(device).eval()
    ids = tokens(torch.Generator().manual_seed(1))["input_ids"].to(device)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model.generate(ids, max_new_tokens=10, do_sample=True, top_k=20, pad_token_id=0).tolist())
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.lazy
def test_generation_builds_a_bounded_number_of_graphs(device: str) -> None:
    """Each length may be planned once; another text of the same lengths plans nothing."""
    torch.manual_seed(0)
    model = gpt2().to(device).eval()
    ids = tokens(torch.Generator().manual_seed(1))["input_ids"].to(device)

    def generate() -> Any:
        return model.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0).tolist()

    _, first = counted(generate, "graphs_planned")
    generate()
    _, again = counted(generate, "graphs_planned")
    assert first["graphs_planned"] <= 3 * 20 + 10
    assert again["graphs_planned"] == 0
    under_test.sync()
