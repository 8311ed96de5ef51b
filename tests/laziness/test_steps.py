"""A training step is recorded whole, then looked up, run once, and waits for nothing that nobody asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from support import device as under_test
from support.device import counted, counter
from support.training import Trainer, batch, mlp

pytestmark = pytest.mark.lazy

RAN = ("kernels_run", "library_calls", "graphs_ended")
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {}),
    "sgd momentum": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 1e-4}),
    "sgd forloop": (torch.optim.SGD, {"momentum": 0.9, "foreach": False}),
    "sgd fused": (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
    "adam": (torch.optim.Adam, {}),
    "adam forloop": (torch.optim.Adam, {"foreach": False}),
    "adam fused": (torch.optim.Adam, {"fused": True}),
    "adamw": (torch.optim.AdamW, {}),
    "adamw amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "adamw capturable": (torch.optim.AdamW, {"capturable": True}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adagrad": (torch.optim.Adagrad, {}),
}
WARM = 4


def trainer(name: str = "sgd") -> Trainer:
    optimizer, options = OPTIMIZERS[name]
    made = Trainer(under_test.NAME, optimizer, **options)
    under_test.sync()
    return made


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_kernel_runs_before_the_step_ends(name: str) -> None:
    t = trainer(name)
    for i in range(WARM):
        t.step(i)
    seen: dict[str, int] = {}
    before = under_test.metrics()["counters"]

    def at_end(*_: Any) -> None:  # runs before the hook that ends the graph
        now = under_test.metrics()["counters"]
        seen.update({key: now[key] - before[key] for key in RAN})

    t.optimizer.register_step_post_hook(at_end)
    t.step(WARM)
    assert seen == dict.fromkeys(RAN, 0)
    after = under_test.metrics()["counters"]
    assert after["library_calls"] + after["kernels_run"] > before["library_calls"] + before["kernels_run"]
    assert after["graphs_ended"] == before["graphs_ended"] + 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_graph_and_is_found_again(name: str) -> None:
    t, steps = trainer(name), 20
    _, rose = counted(lambda: [t.step(i) for i in range(steps)] and None, "graphs_ended", "graph_cache_hits", "syncs")
    assert rose["graphs_ended"] == steps
    assert rose["graph_cache_hits"] >= steps - 3
    assert rose["syncs"] <= rose["graphs_ended"], "ending a step's graph is at most one wait; nothing else waits"


@pytest.mark.parametrize("reads", range(4))
def test_graphs_a_step(reads: int) -> None:
    """One for the step, one more for each pending value that is read inside it."""
    t = trainer("adam")

    def step(i: int) -> None:
        t.optimizer.zero_grad(set_to_none=True)
        loss = t.loss(i)
        if reads > 0:
            loss.item()
        loss.backward()
        grads = [p.grad for p in t.model.parameters()]
        if reads > 1:
            grads[0].sum().item()
        if reads > 2:
            bool(grads[1].isfinite().all())
        t.optimizer.step()
        loss.item()  # ready by now
        loss.item()

    for i in range(WARM):
        step(i)
    steps = 5
    _, rose = counted(lambda: [step(i) for i in range(steps)], "graphs_ended", "graph_cache_misses")
    assert rose == {"graphs_ended": steps * (1 + reads), "graph_cache_misses": 0}


def no_new_graphs(step: Callable[[int], Any], steps: int = 12, warm: int = WARM) -> None:
    """Neither the steps nor the wait after them make a graph that the same course did not make before."""

    def course(first: int, count: int) -> None:
        for i in range(count):
            step(first + i)
        under_test.sync()

    course(0, warm)
    course(warm, 3)
    _, rose = counted(lambda: course(warm + 3, steps), "graphs_planned", "graph_cache_misses")
    assert rose == {"graphs_planned": 0, "graph_cache_misses": 0}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_learning_rate_and_step_count_make_no_new_graph(name: str) -> None:
    t = trainer(name)

    def step(i: int) -> None:
        for group in t.optimizer.param_groups:
            group["lr"] = 0.1 / (i + 1)
        t.step(i)

    no_new_graphs(step)


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=40),
        lambda o: torch.optim.lr_scheduler.LinearLR(o),
    ],
    ids=("step", "cosine", "one cycle", "linear"),
)
def test_schedulers_make_no_new_graph(schedule: Callable[[torch.optim.Optimizer], Any]) -> None:
    t = trainer("adamw")
    scheduler = schedule(t.optimizer)
    no_new_graphs(lambda i: (t.step(i), scheduler.step()))


@pytest.mark.parametrize(
    "use",
    [
        lambda x, i: x * (0.1 * i),
        lambda x, i: x + i,
        lambda x, i: x.clamp(-0.1 * i - 1, i + 1.5),
        lambda x, i: torch.full_like(x, 0.5 * i),
        lambda x, i: x.fill_(0.25 * i),
        lambda x, i: x.add(x, alpha=0.1 * i),
        lambda x, i: x.pow(1.5 + i),
        lambda x, i: x ** (2 + i % 3),
        lambda x, i: x * torch.tensor(0.1 * i),
        lambda x, i: x.addcmul(x, x, value=i / 7),
        lambda x, i: torch.nn.functional.leaky_relu(x, 0.01 * i),
        lambda x, i: torch.nn.functional.dropout(x, 0.05 * (i + 1)),
        lambda x, i: torch.lerp(x, x + 1, 0.03 * i),
        lambda x, i: x > 0.1 * i,
        lambda x, i: x.masked_fill(x > 0, 0.1 * i),
        lambda x, i: torch._foreach_mul([x, x], 0.1 * i)[0],
        lambda x, i: torch.where(x > 0, x, 0.1 * i),
        lambda x, i: torch.rand(4, 4, device=x.device) * x,
        lambda x, i: torch.empty(4, 4, device=x.device).uniform_(0.0, 1.0 + i),
        lambda x, i: torch.empty(4, 4, device=x.device).normal_(0.1 * i, 1.0 + i),
        lambda x, i: x.div(i + 3),
        lambda x, i: x.to(torch.int64) + (2**40 + i),
    ],
    ids=lambda use: None,
)
def test_scalars_make_no_new_graph(use: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    kept = []

    def step(i: int) -> None:
        x = torch.ones(4, 4).to(under_test.NAME)
        kept.append(use(x, i).sum())
        kept[-1].item()
        del kept[:-1]

    no_new_graphs(step, warm=3)


def test_a_loss_kept_each_step_costs_nothing() -> None:
    t, history = trainer("adam"), []
    no_new_graphs(lambda i: history.append(t.step(i)))
    assert len({round(float(loss), 6) for loss in history}) > 1


def test_clipping_and_averaging_stay_lazy() -> None:
    """clip_grad_norm_, an exponential average of the weights and a moving loss read nothing."""
    t = trainer("adamw")
    average = [p.detach().clone() for p in t.model.parameters()]
    running = torch.zeros((), device=under_test.NAME)

    def step(i: int) -> None:
        t.optimizer.zero_grad(set_to_none=True)
        loss = t.loss(i)
        loss.backward()
        nn.utils.clip_grad_norm_(t.model.parameters(), 0.5)
        t.optimizer.step()
        with torch.no_grad():
            for a, p in zip(average, t.model.parameters(), strict=True):
                a.lerp_(p, 0.1)
            running.mul_(0.9).add_(loss.detach(), alpha=0.1)

    no_new_graphs(step)
    _, rose = counted(lambda: [step(i) for i in range(5)] and None, "syncs", "graphs_ended")
    assert rose["graphs_ended"] <= 6
    assert rose["syncs"] <= rose["graphs_ended"]


def test_accumulation_has_two_kinds_of_step() -> None:
    t = trainer("sgd momentum")

    def step(i: int) -> None:
        (t.loss(i) / 2).backward()
        if i % 2:
            t.optimizer.step()
            t.optimizer.zero_grad(set_to_none=True)

    no_new_graphs(step, warm=9)


def test_a_new_shape_is_planned_once() -> None:
    t = trainer("adam")
    for i in range(WARM):
        t.step(i, rows=8)
    _, first = counted(lambda: t.step(5, rows=6), "graphs_planned")
    assert first["graphs_planned"] == 1
    no_new_graphs(lambda i: t.step(i, rows=(8, 6)[i % 2]), warm=2)


def test_two_models_of_one_shape_share_their_graphs() -> None:
    first = trainer("sgd")
    for i in range(WARM):
        first.step(i)
    second = trainer("sgd")
    _, rose = counted(lambda: [second.step(i) for i in range(WARM)], "graphs_planned")
    assert rose["graphs_planned"] == 0


def test_metadata_reads_nothing() -> None:
    x = torch.ones(3, 4).to(under_test.NAME)
    y = (x * 2).t()
    _, rose = counted(
        lambda: (
            y.shape,
            y.stride(),
            y.dtype,
            len(y),
            y.is_contiguous(),
            y.numel(),
            y.device,
            repr(y.shape),
            y.dim(),
            y.size(0),
        ),
        "graphs_ended",
        "syncs",
    )
    assert rose == {"graphs_ended": 0, "syncs": 0}


def test_printing_is_few_waits() -> None:
    x = torch.arange(64.0).reshape(8, 8).to(under_test.NAME) * 1.5
    _, rose = counted(lambda: repr(x), "syncs", "graphs_ended")
    assert rose["graphs_ended"] <= 2
    assert rose["syncs"] <= 3


def test_syncs_name_their_cause() -> None:
    x = torch.ones(3).to(under_test.NAME) + 1
    before = {row["cause"]: row["count"] for row in under_test.metrics()["syncs"]}
    x.sum().item()
    after = {row["cause"]: row["count"] for row in under_test.metrics()["syncs"]}
    risen = [cause for cause in after if after[cause] > before.get(cause, 0)]
    assert len(risen) == 1
    assert risen[0].strip()


# ---------------------------------------------------------------------------------------------- loops without an optimizer


def test_validation_that_keeps_predictions_is_bounded() -> None:
    """Hundreds of batches, nothing read: the same few graphs over and over, and no growing pile of pending work."""
    model = mlp().to(under_test.NAME).eval()

    def validate(batches: int) -> list[torch.Tensor]:
        with torch.no_grad():
            return [model(batch(i)[0].to(under_test.NAME)) for i in range(batches)]

    expected = mlp().eval()
    kept = validate(400)
    under_test.sync()
    _, rose = counted(lambda: (validate(800), under_test.sync()), "graphs_planned")
    assert rose["graphs_planned"] <= 8
    for i in (0, 399):
        assert torch.equal(kept[i].cpu(), expected(batch(i)[0]))


def test_a_loop_without_reads_is_cut_at_its_repetitions() -> None:
    """The bound on recorded operators falls at the same place of the loop's body each time."""
    bound = under_test.flag("MAX_GRAPH_OPS")
    under_test.set_flag("MAX_GRAPH_OPS", 100)
    try:
        x = torch.ones(8).to(under_test.NAME)

        def body(times: int) -> None:
            nonlocal x
            for _ in range(times):
                x = torch.tanh(x * 1.01 + 0.1) - x.mean() * 0.5

        body(200)
        _, rose = counted(lambda: body(600), "graphs_planned", "graphs_ended")
        assert rose["graphs_ended"] >= 10, "recorded work must not grow without limit"
        assert rose["graphs_planned"] <= 3
    finally:
        under_test.sync()
        under_test.set_flag("MAX_GRAPH_OPS", bound)


def test_pending_bytes_are_bounded() -> None:
    bound = under_test.flag("MAX_GRAPH_BYTES")
    under_test.set_flag("MAX_GRAPH_BYTES", 1 << 22)
    try:
        x = torch.ones(1 << 18).to(under_test.NAME)  # a megabyte
        before = counter("graphs_ended")
        kept = [x + i for i in range(40)]
        assert counter("graphs_ended") - before >= 4
        assert float(kept[39][0]) == 40
    finally:
        under_test.set_flag("MAX_GRAPH_BYTES", bound)
