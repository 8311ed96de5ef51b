"""Which operators wait: only those whose result's shape stands in the data, and reads."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from support import compare
from support import device as under_test
from support.device import counted

pytestmark = pytest.mark.lazy
D = under_test.NAME
Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]

# Each gets a float matrix, a vector of indices and a mask, all on the device.
RECORDED: dict[str, Call] = {
    "index with integers": lambda x, i, m: x[i],
    "index with two": lambda x, i, m: x[i, i],
    "index put": lambda x, i, m: x.index_put_((i,), x.sum()),
    "masked fill": lambda x, i, m: x.masked_fill(m, 1.0),
    "assignment through a mask": lambda x, i, m: x.__setitem__(m, 2.0),
    "where with three": lambda x, i, m: torch.where(m, x, -x),
    "gather": lambda x, i, m: x.gather(0, i[None].expand(2, -1)),
    "scatter": lambda x, i, m: x.scatter(0, i[None], 1.0),
    "sort": lambda x, i, m: x.sort(),
    "topk": lambda x, i, m: x.topk(2),
    "argmax": lambda x, i, m: x.argmax(1),
    "embedding": lambda x, i, m: F.embedding(i, x),
    "one hot with classes": lambda x, i, m: F.one_hot(i, 4),
    "cross entropy": lambda x, i, m: F.cross_entropy(x[:3], i),
    "cumsum": lambda x, i, m: x.cumsum(0),
    "any": lambda x, i, m: m.any(),
    "isfinite": lambda x, i, m: x.isfinite().all(),
    "norm": lambda x, i, m: torch.linalg.vector_norm(x),
    "clip": lambda x, i, m: F.normalize(x),
    "softmax": lambda x, i, m: x.softmax(1),
    "dropout": lambda x, i, m: F.dropout(x),
    "attention": lambda x, i, m: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "convolution": lambda x, i, m: F.conv2d(x[None, None], x[None, None, :2, :2]),
    "batch norm": lambda x, i, m: F.batch_norm(x, x[0].clone(), x[1].clone(), training=True),
    "layer norm": lambda x, i, m: F.layer_norm(x, (4,)),
    "interpolate": lambda x, i, m: F.interpolate(x[None, None], scale_factor=2),
    "pooling": lambda x, i, m: F.max_pool2d(x[None, None], 2),
    "add_": lambda x, i, m: x.add_(1),
    "mul_ of a view": lambda x, i, m: x[1:].mul_(2),
    "copy_": lambda x, i, m: x.copy_(x.t().clone()),
    "zero_": lambda x, i, m: x.zero_(),
    "out=": lambda x, i, m: torch.add(x, 1, out=torch.empty(4, 4, device=D)),
    "out= that grows": lambda x, i, m: torch.add(x, 1, out=torch.empty(0, device=D)),
    "matmul out=": lambda x, i, m: torch.mm(x, x, out=torch.empty(4, 4, device=D)),
    "in-place sort of dtypes": lambda x, i, m: x.to(torch.bfloat16).to(torch.int64),
    "clone": lambda x, i, m: x.t().clone(memory_format=torch.contiguous_format),
    "cat": lambda x, i, m: torch.cat([x, x]),
    "split": lambda x, i, m: x.split([1, 3]),
    "einsum": lambda x, i, m: torch.einsum("ij,kj->ik", x, x),
    "foreach": lambda x, i, m: torch._foreach_add_([x, x], [x, x], alpha=2),
    "uniform_": lambda x, i, m: x.uniform_(),
    "resize_": lambda x, i, m: x.clone().resize_(2, 2),
    "detach": lambda x, i, m: x.detach().data,
    "complex": lambda x, i, m: torch.complex(x, x).conj().abs(),
    "repeat": lambda x, i, m: x.repeat(2, 2),
    "repeat interleave by a number": lambda x, i, m: x.repeat_interleave(2, 0),
    "tril": lambda x, i, m: x.tril(),
    "bucketize": lambda x, i, m: torch.bucketize(x, x[0]),
    "histogram of fixed bins": lambda x, i, m: torch.histc(x, 4, 0, 1),
}

DEPENDS_ON_DATA: dict[str, Call] = {
    "index with a mask": lambda x, i, m: x[m],
    "masked select": lambda x, i, m: x.masked_select(m),
    "nonzero": lambda x, i, m: m.nonzero(),
    "where with one": lambda x, i, m: torch.where(m)[0],
    "argwhere": lambda x, i, m: torch.argwhere(m),
    "unique": lambda x, i, m: i.unique(),
    "unique with counts": lambda x, i, m: torch.unique(i, return_inverse=True, return_counts=True),
    "unique consecutive": lambda x, i, m: i.unique_consecutive(),
    "bincount": lambda x, i, m: torch.bincount(i),
    "repeat interleave by a tensor": lambda x, i, m: x[:3].repeat_interleave(i, 0),
    "one hot": lambda x, i, m: F.one_hot(i),
    "byte mask": lambda x, i, m: x[m.to(torch.uint8)],
    "embedding bag": lambda x, i, m: F.embedding_bag(i, x, torch.tensor([0, 2], device=x.device)),
    "packing": lambda x, i, m: torch._VF._pack_padded_sequence(x[None], torch.tensor([4]), True)[0],
}


def operands(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.arange(16.0).reshape(4, 4).to(device) / 7
    return x, torch.tensor([2, 0, 2]).to(device), x > 1


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    """From the second call on, when shapes that had to be seen once are known."""
    call = RECORDED[name]
    call(*operands(D))
    under_test.sync()
    given = operands(D)
    kept, rose = counted(lambda: call(*given), "graphs_ended", "syncs", "ops_run_now")
    assert rose == {"graphs_ended": 0, "syncs": 0, "ops_run_now": 0}
    if not any(word in name for word in ("dropout", "uniform", "resize")):
        host = operands("cpu")
        want = call(*host) if "out=" not in name else None
        if want is not None:
            assert not compare.differences(want, kept)
        assert not compare.differences(list(host), list(given)) or "out=" in name


@pytest.mark.parametrize("name", DEPENDS_ON_DATA)
def test_depends_on_data(name: str) -> None:
    """Runs at once after what it needs, is right, says so in the metrics, and what comes after is recorded again."""
    call = DEPENDS_ON_DATA[name]

    def pending() -> list[torch.Tensor]:
        x, i, m = operands(D)
        return [x + 0, i + 0, m & True]

    call(*pending())
    under_test.sync()
    given = pending()
    before = {row["op"]: row["count"] for row in under_test.metrics()["fallbacks"]}
    result, rose = counted(lambda: call(*given), "graphs_ended", "ops_run_now")
    reasons = [row for row in under_test.metrics()["fallbacks"] if row["count"] > before.get(row["op"], 0)]
    assert 1 <= rose["graphs_ended"] <= 2
    assert rose["ops_run_now"] >= 1 or name == "one hot"  # which reads a value to know how wide it is
    assert all(row["reason"].strip() for row in reasons)
    want = call(*operands("cpu"))
    assert not compare.differences(want, result)
    after, rose = counted(lambda: given[0] * 2, "graphs_ended", "syncs")
    assert rose == {"graphs_ended": 0, "syncs": 0}
    assert torch.equal(after.cpu(), operands("cpu")[0] * 2)


def test_no_operator_that_pytorch_tags_was_forgotten() -> None:
    """The table says what depends on contents; the tags of PyTorch only say where it should have a row."""
    table = (under_test.ROOT / "src" / "ops" / "op_table.cpp").read_text()
    rows = {name for name, flags in re.findall(r'\{"(aten::\w+)", \w+, ([\w |]+)', table) if "kDataDependent" in flags}
    tagged = set()
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.partition(".")
        if base.startswith("aten::") and hasattr(torch.ops.aten, base[6:]):
            packet = getattr(torch.ops.aten, base[6:])
            tags = getattr(packet, overload or "default").tags if (overload or "default") in packet.overloads() else []
            if torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
                tagged.add(base)
    assert len(tagged) > 10
    decomposed = {"aten::item", "aten::one_hot"}  # into operators that have rows
    assert tagged - rows == decomposed


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: bool((x > 0).any()),
        lambda x: int(x.argmax()),
        lambda x: x.to("cpu", torch.float64),
        lambda x: torch.equal(x, x + 0),
        lambda x: repr(x),
        lambda x: x.untyped_storage().cpu(),
        lambda x: f"{x.sum():.3f}",
        lambda x: list(map(float, x[0])),
    ],
    ids=("item", "tolist", "cpu", "bool", "int", "to", "equal", "repr", "storage", "format", "iteration"),
)
def test_reads_wait(read: Callable[[torch.Tensor], object]) -> None:
    x = operands(D)[0] + 1
    want = read(operands("cpu")[0] + 1)
    got, rose = counted(lambda: read(x), "graphs_ended", "syncs")
    assert rose["graphs_ended"] >= 1
    if isinstance(want, torch.Tensor):
        assert torch.equal(want, got)
    elif isinstance(want, str):
        assert want.rstrip(")") in got or want[:6] == got[:6]
    elif not isinstance(want, torch.UntypedStorage):
        assert want == got


def test_tensors_are_not_held_by_the_graph() -> None:
    """Their counts reach Python, and holding them keeps gradients from being taken over."""
    import weakref

    x = torch.ones(3).to(D)
    y = x + 1
    gone = weakref.ref(y)
    z = y * 2
    del y
    assert gone() is None
    assert z.tolist() == [4, 4, 4]


def test_gradients_are_taken_over_not_copied() -> None:
    def same_memory(device: str) -> list[bool]:
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).to(device)
        seen: dict[int, int] = {}
        for n, p in enumerate(net.parameters()):
            p.register_hook(lambda g, n=n: seen.__setitem__(n, g.untyped_storage()._cdata))
        net(torch.ones(2, 3).to(device)).sum().backward()
        return [p.grad.untyped_storage()._cdata == seen[n] for n, p in enumerate(net.parameters())]

    assert same_memory(D) == same_memory("cpu")
