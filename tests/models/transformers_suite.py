"""transformers' own tests of its models, from its source distribution, for three models with testers of ours.

The wheel has no tests; the source distribution has the common ones, without the modules for generation and export, for which
empty classes stand in. It is fetched once for the installed version and kept.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import xml.etree.ElementTree as ElementTree

from support import device as under_test

CACHE = pathlib.Path(os.environ.get("SINTER_TEST_CACHE", under_test.ROOT / "build" / "conformance"))

STAND_INS = {
    "tests/__init__.py": "",
    "tests/generation/__init__.py": "",
    "tests/generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "tests/exporters/__init__.py": "",
    "tests/exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
}

# The tolerances are chosen by the device's name, and for a name they do not know they are 1e-7 even in half precision.
# The device runs the CPU's kernels: the CPU's tolerances are its own.
NAMES = (
    ('if torch_device in ["cpu", "cuda"]:', 'if torch_device in ["cpu", "cuda", "{device}"]:'),
    ("atols[torch_device, ", 'atols[torch_device.replace("{device}", "cpu"), '),
    ("rtols[torch_device, ", 'rtols[torch_device.replace("{device}", "cpu"), '),
)

# Left out, by name: what the CPU leaves out as well because it asks for an accelerator with Triton.
LEFT_OUT = "not test_flex_attention_with_grads"

TESTERS = '''
"""GPT-2, Llama and BERT with random weights."""
import unittest

from transformers import (
    BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel,
    GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM, LlamaModel,
)
from transformers.testing_utils import torch_device

from ..test_modeling_common import ModelTesterMixin, ids_tensor, random_attention_mask


class Configured:
    """What the common tests ask of a configuration tester."""

    def run_common_tests(self):
        pass


class Tester:
    batch_size, seq_length, is_training = 3, 7, True

    def __init__(self, parent, make_config, classes):
        self.parent, self.make_config, self.classes = parent, make_config, classes
        self.hidden_size, self.num_hidden_layers, self.num_attention_heads = 32, 2, 4
        self.key_length = self.encoder_seq_length = self.seq_length

    def get_config(self):
        return self.make_config()

    def prepare_config_and_inputs_for_common(self):
        ids = ids_tensor([self.batch_size, self.seq_length], 99)
        mask = random_attention_mask([self.batch_size, self.seq_length])
        return self.get_config(), {"input_ids": ids, "attention_mask": mask}


def gpt2():
    return GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=98, eos_token_id=98, pad_token_id=97)


def llama():
    return LlamaConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                       intermediate_size=37, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def bert():
    return BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
                      max_position_embeddings=64, type_vocab_size=2)


class GPT2Test(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (GPT2Model, GPT2LMHeadModel)

    def setUp(self):
        self.model_tester = Tester(self, gpt2, self.all_model_classes)


class LlamaTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (LlamaModel, LlamaForCausalLM)

    def setUp(self):
        self.model_tester = Tester(self, llama, self.all_model_classes)


class BertTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (BertModel, BertForMaskedLM, BertForSequenceClassification)

    def setUp(self):
        self.model_tester = Tester(self, bert, self.all_model_classes)
'''


def folder() -> pathlib.Path:
    """The unpacked distribution with our testers in it."""
    version = importlib.metadata.version("transformers")
    place = CACHE / f"transformers-{version}"
    if not (place / "tests" / "test_modeling_common.py").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", scratch]
            command = [sys.executable, "-m", "pip", "download", "-q", *options, f"transformers=={version}"]
            subprocess.run(command, check=True)
            archive = next(pathlib.Path(scratch).glob("*.tar.gz"))
            with tarfile.open(archive) as tar:
                tar.extractall(CACHE, filter="data")
    common = place / "tests" / "test_modeling_common.py"
    text = common.read_text()
    for old, new in NAMES:
        new = new.format(device=under_test.NAME)
        assert old in text or new in text, f"{common} no longer says {old}"
        text = text if new in text else text.replace(old, new)
    common.write_text(text)
    for name, text in (STAND_INS | {"tests/ours/__init__.py": "", "tests/ours/test_ours.py": TESTERS}).items():
        target = place / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(textwrap.dedent(text))
    return place


def run(device: str, selected: str = "") -> dict[str, str]:
    """Test name: passed, failed or skipped, on that device; with the reason of a failure."""
    place = folder()
    report = place / f"report-{device}.xml"
    report.unlink(missing_ok=True)
    environment = os.environ | {
        "TRANSFORMERS_TEST_DEVICE": device,
        "HF_HUB_OFFLINE": "1",
        "ACCELERATE_TORCH_DEVICE": device,
    }
    (place / "spec.py").write_text(
        f"import torch\nDEVICE_NAME = {device!r}\nMANUAL_SEED_FN = torch.manual_seed\n"
        "EMPTY_CACHE_FN = lambda: None\nDEVICE_COUNT_FN = lambda: 1\n"
    )
    if device != "cpu":
        environment["TRANSFORMERS_TEST_DEVICE_SPEC"] = "spec.py"
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        f"--junitxml={report}",
        "-c",
        os.devnull,
        f"--rootdir={place}",
    ]
    command = [sys.executable, "-m", "pytest", "tests/ours/test_ours.py", *options]
    done = subprocess.run(
        [*command, "-k", f"{selected} and {LEFT_OUT}" if selected else LEFT_OUT],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}"
        problem = case.find("failure")
        problem = problem if problem is not None else case.find("error")
        if problem is not None:
            outcomes[name] = f"failed: {problem.get('message', '')[:300]}"
        else:
            outcomes[name] = "skipped" if case.find("skipped") is not None else "passed"
    return outcomes
