"""transformers' own modeling tests: the device has no failure that the CPU does not have."""

from __future__ import annotations

import pytest

from models import transformers_suite
from support import device as under_test


@pytest.mark.slow
@pytest.mark.lazy
@pytest.mark.parametrize("model", ("GPT2", "Llama", "Bert"))
def test_no_failure_that_the_cpu_does_not_have(model: str) -> None:
    want = transformers_suite.run("cpu", f"{model}Test")
    got = transformers_suite.run(under_test.NAME, f"{model}Test")
    passed = [name for name, outcome in got.items() if outcome == "passed"]
    print(f"{model}: {len(passed)} of {len(got)} pass, {sum(o == 'skipped' for o in got.values())} are skipped")
    assert len(passed) > 80
    worse = {
        name: outcome
        for name, outcome in got.items()
        if outcome.startswith("failed") and not want.get(name, "").startswith("failed")
    }
    assert not worse, "\n".join(f"{name}: {outcome}" for name, outcome in worse.items())
