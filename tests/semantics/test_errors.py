"""Errors: raised once, with eager's type, naming the operator and shapes; nothing that had contents loses them."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support import device as under_test
from support import process
from support.device import counter

pytestmark = pytest.mark.lazy


def bad_lookup(rows: int = 4) -> torch.Tensor:
    """A pending value whose computation will fail: index 99 of 5."""
    table = torch.ones(5, 3).to(under_test.NAME)
    return F.embedding(torch.full((rows,), 99).to(under_test.NAME), table)


def settle() -> None:
    """Ends what is open, whatever it says."""
    with contextlib.suppress(Exception):
        under_test.sync()


class Tagger(nn.Module):
    """Fails when it runs, not when it is recorded, on an index that its table does not have."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table, self.out = nn.Embedding(10, 8), nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(ids)).square().mean()


# ---------------------------------------------------------------------------------------------- when the graph runs


def test_raised_where_the_graph_ends_with_type_operator_and_shapes() -> None:
    y = bad_lookup(rows=7) * 2  # recording says nothing
    with pytest.raises(IndexError, match="index out of range") as caught:
        y.sum().item()
    text = str(caught.value)
    assert "aten::embedding" in text
    assert "5, 3" in text or "5,3" in text
    assert re.search(r"\b7\b", text)
    settle()


ENDS: dict[str, Callable[[torch.Tensor], object]] = {
    "a read of another value": lambda x: x.tolist(),
    "a number": lambda x: x.sum().item(),
    "an address": lambda x: x.data_ptr(),
    "an operator that runs at once": lambda x: x.nonzero(),
    "an event": lambda x: torch.Event(device=under_test.NAME).record() or torch.sinter.synchronize(),
    "a changed setting": lambda x: (torch.set_default_dtype(torch.float64), x + 1),
    "an optimizer step": lambda x: torch.optim.SGD([_with_gradient()], 0.1).step(),
    "an export": lambda x: torch.utils.dlpack.to_dlpack(x),
    "a copy to the CPU": lambda x: torch.empty(3).copy_(x),
}


def _with_gradient() -> torch.Tensor:
    leaf = torch.ones(3, device=under_test.NAME, requires_grad=True)
    leaf.grad = torch.ones(3, device=under_test.NAME)
    return leaf


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_raised_by_the_call_that_ends_the_graph(end) -> None:
    """Though it asked for something else, which stands: the next call has it."""
    if under_test.flag("ASYNC") == "True":
        pytest.skip("the worker's errors come at the next wait")
    x = torch.ones(3).to(under_test.NAME) + 1
    bad = bad_lookup()
    try:
        with pytest.raises(IndexError, match="index out of range"):
            end(x)
        del bad
        assert x.tolist() == [2, 2, 2]
    finally:
        torch.set_default_dtype(torch.float32)


def test_raised_once() -> None:
    bad_lookup()
    with pytest.raises(IndexError):
        under_test.sync()
    under_test.sync()
    x = torch.ones(3).to(under_test.NAME)
    assert (x + x).tolist() == [2, 2, 2]


def test_who_reads_what_was_never_computed_gets_the_error_again() -> None:
    y = bad_lookup()
    z = y * 2
    with pytest.raises(IndexError):
        under_test.sync()
    for _ in range(2):
        with pytest.raises(IndexError, match="index out of range"):
            z.cpu()
    with pytest.raises(IndexError):
        (z + 1).sum().item()
    settle()


def test_other_values_of_the_graph_survive() -> None:
    """What was computed before the failure stands; what came after and needs it does not."""
    x = torch.ones(3).to(under_test.NAME)
    before = x + 1
    bad_lookup()
    with pytest.raises(IndexError):
        under_test.sync()
    assert before.tolist() == [2, 2, 2]
    assert x.tolist() == [1, 1, 1]


def test_a_buffer_with_contents_keeps_them() -> None:
    kept = torch.arange(4.0).to(under_test.NAME)
    under_test.sync()
    y = bad_lookup()
    kept.add_(y.sum())
    kept.mul_(100)
    with pytest.raises(IndexError):
        under_test.sync()
    assert kept.tolist() == [0, 1, 2, 3]
    kept.add_(1)
    assert kept.tolist() == [1, 2, 3, 4]


def test_writes_before_the_failure_count() -> None:
    """As in eager, where they had already happened."""
    kept = torch.arange(4.0).to(under_test.NAME)
    under_test.sync()
    kept.add_(1)
    bad_lookup()
    kept.mul_(100)
    with pytest.raises(IndexError):
        under_test.sync()
    assert kept.tolist() == [1, 2, 3, 4]


def test_a_poisoned_buffer_that_is_written_whole_is_well_again() -> None:
    y = bad_lookup()
    with pytest.raises(IndexError):
        under_test.sync()
    y.fill_(2)
    assert y.sum().item() == 24
    y.zero_()
    assert y.sum().item() == 0


@pytest.mark.parametrize("bad_step", (0, 2))
@pytest.mark.parametrize("optimizer", ("sgd", "momentum", "adam", "adam fused"))
def test_training_goes_on_after_a_bad_batch(optimizer: str, bad_step: int) -> None:
    """`try: train(batch) except IndexError: continue` ends with the weights of eager, which skipped the batch."""

    def run(device: str) -> tuple[list[torch.Tensor], int]:
        net, failures = Tagger().to(device), 0
        made = {
            "sgd": lambda p: torch.optim.SGD(p, 0.1, foreach=False),
            "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False),
            "adam": lambda p: torch.optim.Adam(p, 0.01, foreach=False),
            "adam fused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
        }[optimizer](net.parameters())
        for step in range(5):
            ids = torch.tensor([1, 2, 99 if step == bad_step else 3])
            try:
                made.zero_grad()
                net(ids.to(device)).backward()
                made.step()
                if device != "cpu":
                    under_test.sync()
            except IndexError:
                failures += 1
        return [p.detach().cpu() for p in net.parameters()], failures

    (want, one), (got, other) = run("cpu"), run(under_test.NAME)
    assert one == other == 1
    if optimizer.startswith("adam"):
        # the step count is the optimizer's own and had moved before the failure showed: the update's size may differ
        for a, b in zip(want, got, strict=True):
            assert torch.isfinite(b).all()
            torch.testing.assert_close(b, a, rtol=0, atol=0.05)
    else:
        for a, b in zip(want, got, strict=True):
            assert torch.equal(a, b)


def test_weights_stay_as_they_were_before_the_failing_step() -> None:
    net = Tagger().to(under_test.NAME)
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    optimizer.zero_grad()
    net(torch.tensor([1, 2]).to(under_test.NAME)).backward()
    optimizer.step()
    before = [p.detach().cpu() for p in net.parameters()]
    with pytest.raises(IndexError):
        optimizer.zero_grad()
        net(torch.tensor([1, 99]).to(under_test.NAME)).backward()
        optimizer.step()
        under_test.sync()
    for a, p in zip(before, net.parameters(), strict=True):
        assert torch.equal(a, p.detach().cpu())


def test_many_failures_leave_the_process_usable() -> None:
    for _ in range(20):
        bad_lookup()
        with pytest.raises(IndexError):
            under_test.sync()
    x = torch.randn(8, 8)
    assert torch.equal((x.to(under_test.NAME) @ x.to(under_test.NAME)).cpu(), x @ x)


def test_a_failing_graph_fails_again_and_a_good_one_of_its_kind_does_not() -> None:
    """The graph is found again by its key; its failure must not stick to the plan."""

    def look(index: int) -> float:
        table = torch.ones(5, 3).to(under_test.NAME)
        return F.embedding(torch.tensor([index]).to(under_test.NAME), table).sum().item()

    assert look(1) == 3
    for _ in range(2):
        with pytest.raises(IndexError):
            look(7)
        settle()
        assert look(2) == 3


def test_failures_are_counted() -> None:
    before = counter("graph_failures")
    bad_lookup()
    with pytest.raises(IndexError):
        under_test.sync()
    assert counter("graph_failures") == before + 1


# ---------------------------------------------------------------------------------------------- when recording


CALLS = {
    "matmul": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "broadcast": lambda d: torch.ones(2, 3, device=d) + torch.ones(4, device=d),
    "linear": lambda d: F.linear(torch.ones(2, 3, device=d), torch.ones(4, 5, device=d)),
    "dimension": lambda d: torch.ones(2, 3, device=d).sum(5),
    "view": lambda d: torch.ones(2, 3, device=d).view(7),
    "transposed view": lambda d: torch.ones(2, 3, device=d).t().view(6),
    "in place": lambda d: torch.ones(3, device=d).add_(torch.ones(2, 3, device=d)),
    "in-place dtype": lambda d: torch.ones(3, dtype=torch.int64, device=d).mul_(0.5),
    "cat": lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
    "stack": lambda d: torch.stack([torch.ones(2, device=d), torch.ones(3, device=d)]),
    "mm dtype": lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, dtype=torch.float64, device=d),
    "conv": lambda d: F.conv2d(torch.ones(1, 3, 8, 8, device=d), torch.ones(4, 2, 3, 3, device=d)),
    "layer norm": lambda d: F.layer_norm(torch.ones(2, 3, device=d), (4,)),
    "batch norm": lambda d: F.batch_norm(torch.ones(2, 3, device=d), torch.ones(4, device=d), torch.ones(4, device=d)),
    "cross entropy": lambda d: F.cross_entropy(torch.ones(2, 3, device=d), torch.zeros(4, dtype=torch.long, device=d)),
    "embedding dtype": lambda d: F.embedding(torch.ones(2, device=d), torch.ones(3, 3, device=d)),
    "select": lambda d: torch.ones(3, device=d)[5],
    "index count": lambda d: torch.ones(3, device=d)[
        torch.zeros(1, dtype=torch.long, device=d), torch.zeros(1, dtype=torch.long, device=d)
    ],
    "gather rank": lambda d: torch.ones(3, 3, device=d).gather(0, torch.zeros(3, dtype=torch.long, device=d)),
    "overlapping write": lambda d: torch.ones(1, device=d).expand(3).add_(1),
    "bool subtraction": lambda d: torch.ones(2, dtype=torch.bool, device=d) - torch.ones(2, dtype=torch.bool, device=d),
    "attention": lambda d: F.scaled_dot_product_attention(*[torch.ones(1, 2, 3, n, device=d) for n in (4, 5, 4)]),
    "dropout p": lambda d: F.dropout(torch.ones(2, device=d), 1.5),
    "out dtype": lambda d: torch.add(torch.ones(2, device=d), 1, out=torch.ones(2, dtype=torch.int64, device=d)),
    "leaf in place": lambda d: torch.ones(2, device=d, requires_grad=True).add_(1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_seen_while_recording(call) -> None:
    """Raised at once, at the caller's line, in PyTorch's words; nothing runs."""
    with pytest.raises(Exception) as eager:
        call("cpu")
    call_count = counter("graph_failures")
    with pytest.raises(eager.type) as lazy:
        call(under_test.NAME)
    assert type(lazy.value) is type(eager.value)

    def words(error: BaseException) -> str:
        return re.sub(rf"{under_test.NAME}(:0)?|cpu|CPU", "device", str(error)).split("\nException raised")[0]

    assert words(lazy.value) == words(eager.value)
    assert counter("graph_failures") == call_count


def test_mixed_devices() -> None:
    with pytest.raises(RuntimeError, match=r"same device|found at least two devices"):
        torch.ones(3, device=under_test.NAME) + torch.ones(3)
    with pytest.raises(RuntimeError):
        torch.ones(3, 3) @ torch.ones(3, 3, device=under_test.NAME)


def test_saved_value_changed_in_place() -> None:
    x = torch.ones(3, device=under_test.NAME, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# ---------------------------------------------------------------------------------------------- flags that bring errors closer

FAILING = """
import torch.nn.functional as F
table = torch.ones(5, 3).to(D)
ids = torch.tensor([1, 99]).to(D)
try:
    y = F.embedding(ids, table)  # the line
    print("recorded")
    y.sum().item()
except IndexError as error:
    print(str(error))
    import traceback
    traceback.print_exc(file=sys.stdout)
print((torch.ones(2).to(D) + 1).tolist())
"""


def test_blocking_raises_on_the_line() -> None:
    text = process.output(FAILING, SINTER_BLOCKING=1)
    assert "recorded" not in text
    assert "index out of range" in text
    assert text.rstrip().endswith("[2.0, 2.0]")


def test_without_blocking_it_raises_at_the_read() -> None:
    text = process.output(FAILING, SINTER_BLOCKING=0)
    assert text.startswith("recorded")
    assert "index out of range" in text


def test_trace_lines_name_the_line_that_recorded_it(tmp_path) -> None:
    script = tmp_path / "train_script.py"
    script.write_text(
        process.PRELUDE.format(tests=str(under_test.ROOT / "tests"))
        + "\nimport torch.nn.functional as F\n"
        + "def forward(ids, table):\n"
        + "    return F.embedding(ids, table)  # LINE\n"
        + "y = forward(torch.tensor([1, 99]).to(D), torch.ones(5, 3).to(D))\n"
        + "try:\n    under_test.sync()\nexcept IndexError as error:\n    print(error)\n"
    )
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "LINE" in text)
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, str(script)],
        env=process.environment({"SINTER_TRACE_LINES": 1}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"train_script.py:{line}" in done.stdout.replace('", line ', ":"), done.stdout


def test_trace_lines_of_backward_name_the_forward(tmp_path) -> None:
    """A failure in backward: the line is that of the forward call it belongs to."""
    script = tmp_path / "train_script.py"
    script.write_text(
        process.PRELUDE.format(tests=str(under_test.ROOT / "tests"))
        + "target = torch.tensor([1, 2]).to(D)\n"
        + "x = torch.ones(2, 3).to(D).requires_grad_()\n"
        + "loss = torch.nn.functional.nll_loss(x, target)  # LINE\n"
        + "under_test.sync()\n"
        + "target.data.fill_(99)\n"
        + "try:\n    loss.backward()\n    under_test.sync()\nexcept IndexError as error:\n    print(error)\n"
    )
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "LINE" in text)
    done = subprocess.run(
        [sys.executable, str(script)],
        env=process.environment({"SINTER_TRACE_LINES": 1}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nll_loss_backward" in done.stdout
    assert f"train_script.py:{line}" in done.stdout, done.stdout


# Of a list PyTorch makes a tensor of the device before any operator sees it.
INDICES = {
    "positive": torch.tensor([7]),
    "negative": torch.tensor([0, -9]),
    "behind others": (slice(None), torch.tensor([4])),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_bounds_of_indices_on_the_host_are_checked_at_once(index) -> None:
    with pytest.raises(IndexError) as eager:
        torch.ones(3, 4)[index]
    x = torch.ones(3, 4, device=under_test.NAME)
    try:
        with pytest.raises(IndexError) as lazy:
            x[index]
        assert str(lazy.value) == str(eager.value)
        with pytest.raises(IndexError):
            x[index] = 1.0
    finally:
        with contextlib.suppress(IndexError):
            under_test.sync()
