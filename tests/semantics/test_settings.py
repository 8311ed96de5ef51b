"""Settings that a kernel reads belong to the operator as it was called; bounds and caches keep their limits."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

from support import compare, process
from support import device as under_test
from support.device import counted

pytestmark = pytest.mark.lazy
D = under_test.NAME


def test_denormals() -> None:
    tiny = torch.full((4,), 1e-38)
    kept = tiny.to(D)
    under_test.sync()
    y = kept * 0.01
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        flushed = kept * 0.01
        assert (y != 0).tolist() == [True] * 4 or bool((y.cpu().view(torch.int32) != 0).all())
        assert bool((flushed.cpu().view(torch.int32) == 0).all())
    finally:
        torch.set_flush_denormal(False)
    assert bool(((kept * 0.01).cpu().view(torch.int32) != 0).all())


def test_the_device_leaves_denormals_of_the_process_alone() -> None:
    (torch.ones(1000).to(D) * 2).cpu()
    assert bool((torch.full((1000,), 1e-38) * 0.01 != 0).all())


@pytest.mark.parametrize("first, second", (("highest", "medium"), ("medium", "highest")))
def test_matmul_precision(first: str, second: str) -> None:
    a = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(first)
        want = a @ a
        x = a.to(D)
        y = x @ x
        torch.set_float32_matmul_precision(second)
        z = x @ x
        assert torch.equal(z.cpu(), a @ a)
        assert torch.equal(y.cpu(), want)
    finally:
        torch.set_float32_matmul_precision(before)


def test_deterministic_algorithms() -> None:
    """An operator recorded under the setting obeys it, one recorded outside does not, whenever they run."""
    (x,) = (torch.zeros(3).to(D),)
    torch.use_deterministic_algorithms(True)
    try:
        grown = torch.empty(5, device=D)
        x.resize_(8)
        assert bool(grown.isnan().all()) == bool(torch.empty(5).isnan().all())
    finally:
        torch.use_deterministic_algorithms(False)
    index, values = torch.zeros(100, dtype=torch.long), torch.rand(100)
    y = torch.zeros(2, device=D).index_put_((index.to(D),), values.to(D), accumulate=True)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.isfinite(y).all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_mkldnn_switch() -> None:
    a, w = torch.randn(2, 8, 16, 16), torch.randn(8, 8, 3, 3)
    x, v = a.to(D), w.to(D)
    with torch.backends.mkldnn.flags(enabled=False):
        want = torch.conv2d(a, w)
        y = torch.conv2d(x, v)
    z = torch.conv2d(x, v)
    assert torch.equal(y.cpu(), want)
    assert torch.equal(z.cpu(), torch.conv2d(a, w))


def test_default_dtype() -> None:
    n = torch.arange(3).to(D)
    y = n / 2
    torch.set_default_dtype(torch.float64)
    try:
        z = n / 2
        assert y.dtype == torch.float32
        assert z.dtype == torch.float64
        assert torch.ones(2, device=D).dtype == torch.float64
        assert (n.float() + 0.1).dtype == torch.float32
        assert (y.tolist(), z.tolist()) == ([0, 0.5, 1], [0, 0.5, 1])
    finally:
        torch.set_default_dtype(torch.float32)
    assert (n / 2).dtype == torch.float32


SETTINGS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "deterministic, warning": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.use_deterministic_algorithms(False),
    ),
    "filled memory": (
        lambda: torch._C._set_deterministic_fill_uninitialized_memory(False),
        lambda: torch._C._set_deterministic_fill_uninitialized_memory(True),
    ),
    "matmul precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "mkldnn": (lambda: torch.backends.mkldnn.set_flags(False), lambda: torch.backends.mkldnn.set_flags(True)),
    "mkldnn deterministic": (
        lambda: torch.backends.mkldnn.set_flags(True, True),
        lambda: torch.backends.mkldnn.set_flags(True, False),
    ),
    "nnpack": (lambda: torch.backends.nnpack.set_flags(False), lambda: torch.backends.nnpack.set_flags(True)),
    "default dtype": (
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ),
    "denormals": (lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)),
}


@pytest.mark.parametrize("change, restore", SETTINGS.values(), ids=SETTINGS)
def test_a_changed_setting_ends_the_open_graph_first(change, restore) -> None:
    x = torch.ones(3).to(D)
    under_test.sync()
    pending = x + 1
    try:
        if change() is False:
            pytest.skip("this CPU cannot do it")
        more, rose = counted(lambda: (x * 3, x * 4), "graphs_ended")
        assert rose["graphs_ended"] == 1
    finally:
        restore()
    values, rose = counted(lambda: (x * 5).tolist(), "graphs_ended")
    assert rose["graphs_ended"] == 2, "and so does changing it back"
    assert (pending.tolist(), [t.tolist() for t in more], values) == ([2] * 3, [[3] * 3, [4] * 3], [5] * 3)


def test_settings_are_part_of_the_key() -> None:
    """A graph planned under one setting does not serve another; each is found again."""

    def course() -> None:
        assert (torch.ones(37).to(D) * 3).sum().item() == 111

    def under_the_other() -> None:
        torch.use_deterministic_algorithms(True)
        try:
            course()
        finally:
            torch.use_deterministic_algorithms(False)

    course()
    planned = [
        counted(action, "graphs_planned")[1]["graphs_planned"] for action in (under_the_other, course, under_the_other)
    ]
    assert planned == [1, 0, 0]


def test_number_of_threads() -> None:
    a = torch.randn(200_000)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            want = a.sum()
            x = a.to(D)
            assert torch.equal(x.sum().cpu(), want)
    finally:
        torch.set_num_threads(threads)


def test_grad_mode_and_inference_mode() -> None:
    w = torch.ones(3, device=D, requires_grad=True)
    with torch.no_grad():
        y = w * 2
    z = w * 2
    with torch.inference_mode():
        i = w * 2
        i.add_(1)
    assert (y.requires_grad, z.requires_grad, i.is_inference()) == (False, True, True)
    assert (y.tolist(), z.tolist(), i.tolist()) == ([2] * 3, [2] * 3, [3] * 3)


# ---------------------------------------------------------------------------------------------- bounds and caches


def test_plans_are_kept_within_a_bound() -> None:
    """Many different graphs with a cache that holds few: entries go, results stay right."""
    bound = under_test.flag("GRAPH_CACHE_BYTES")
    under_test.set_flag("GRAPH_CACHE_BYTES", 20_000)
    try:

        def course() -> None:
            for n in range(1, 60):
                x = torch.ones(n).to(D)
                y = (x * 2 + 1).sum()
                assert y.item() == 3 * n

        _, rose = counted(lambda: (course(), course()), "graph_cache_evictions", "graphs_planned")
        assert rose["graph_cache_evictions"] > 0
        assert rose["graphs_planned"] > 60
    finally:
        under_test.set_flag("GRAPH_CACHE_BYTES", bound)


def test_the_least_recently_used_plans_go_first() -> None:
    bound = under_test.flag("GRAPH_CACHE_BYTES")

    def hits(size: int) -> int:
        return counted(lambda: (torch.ones(size).to(D) * 2 + 1).sum().item(), "graph_cache_hits")[1]["graph_cache_hits"]

    try:
        under_test.set_flag("GRAPH_CACHE_BYTES", 0)
        hits(1000)  # empties the cache
        under_test.set_flag("GRAPH_CACHE_BYTES", 20_000)
        for size in range(1, 60):
            hits(size)
            hits(1)
        assert (hits(1), hits(59), hits(2)) == (1, 1, 0)
    finally:
        under_test.set_flag("GRAPH_CACHE_BYTES", bound)


def test_what_outlives_a_graph_may_vary() -> None:
    """The same operators with other survivors: a few plans, never wrong values."""

    def step(keep: int) -> list[torch.Tensor]:
        x = torch.ones(4).to(D)
        values = [x + 1]
        for _ in range(3):
            values.append(values[-1] * 2)
        kept = [v for bit, v in enumerate(values) if keep >> bit & 1]
        del values, x
        under_test.sync()
        return kept

    for _ in range(2):
        for keep in range(16):
            assert [t[0].item() for t in step(keep)] == [2.0 * 2**bit for bit in range(4) if keep >> bit & 1]
    _, rose = counted(lambda: [step(keep) for keep in range(16)], "graphs_planned")
    assert rose["graphs_planned"] == 0, "the union of what lived serves every smaller set"


def test_aliasing_of_inputs_is_part_of_the_key() -> None:
    def call(a: torch.Tensor, b: torch.Tensor) -> list[float]:
        a.add_(1)
        return (a * b).tolist()

    for _ in range(3):
        x, y = torch.ones(3).to(D), torch.ones(3).to(D)
        assert call(x, y) == [2, 2, 2]
        x = torch.ones(3).to(D)
        assert call(x, x) == [4, 4, 4]
        z = torch.ones(6).to(D)
        assert call(z[:3], z[3:]) == [2, 2, 2]
        assert call(z[1:4], z[:3]) == [6, 9, 6]


def test_views_at_other_places_of_one_buffer() -> None:
    """Equal operators on other regions are not the same graph."""
    base = torch.arange(12.0)
    for start in (0, 2, 5, 2, 0):
        x = base.to(D)
        want = base.clone()
        x[start : start + 3] += 10
        want[start : start + 3] += 10
        assert not compare.differences(want * 2, x * 2)


def test_memory_limit() -> None:
    process.output(
        """
import json
try:
    kept = [torch.ones(1 << 20).to(D) + i for i in range(40)]
    under_test.sync()
    raise SystemExit("no error")
except torch.OutOfMemoryError as error:
    assert "SINTER_MEMORY_LIMIT" in str(error) or "limit" in str(error), error
kept = None
assert (torch.ones(3).to(D) + 1).tolist() == [2, 2, 2]
""",
        SINTER_MEMORY_LIMIT=64 << 20,
    )


def test_flags_are_one_table() -> None:
    rows = json.loads(torch.ops.sinter._flags())
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    for row in rows:
        assert row["help"].strip()
        assert set(row) >= {"name", "type", "default", "value", "help", "in_key"}
    for name in ("ENGINE", "BLOCKING", "TRACE_LINES", "ASYNC", "MAX_GRAPH_OPS", "MAX_GRAPH_BYTES"):
        assert name in names


def test_an_unknown_flag_or_value_is_refused() -> None:
    with pytest.raises(Exception, match="NO_SUCH"):
        under_test.set_flag("NO_SUCH", 1)
    with pytest.raises(Exception, match=r"MAX_GRAPH_OPS|number|integer"):
        under_test.set_flag("MAX_GRAPH_OPS", "many")


def test_precision_of_one_backend() -> None:
    """PyTorch's newer way to say it (torch.backends.mkldnn.matmul.fp32_precision): obeyed, and nothing else changes."""
    process.output(
        """
a = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
x = a.to(D)
want = a @ a
y = x @ x
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
low = a @ a
z = x @ x
assert torch.equal(y.cpu(), want)
assert torch.equal(z.cpu(), low)
assert (x + 1).shape == (64, 64)
"""
    )
