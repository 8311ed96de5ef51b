"""Generated kernels against eager: every row of the lowering table, dtypes, layouts, sizes around the vector width, special values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from support import device as under_test
from support.device import counted

D = under_test.NAME
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SIZES = ((1,), (7,), (15,), (16,), (17,), (31,), (33,), (64,), (100,), (3, 5), (4, 16), (2, 3, 17), (1, 1), (70_000,))

# Two ops each, since one alone stays with PyTorch's kernel.
EXACT: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, y: (x + y) + x,
    "sub": lambda x, y: (x - y) - 1,
    "rsub": lambda x, y: 1 - (x * y),
    "mul": lambda x, y: x * y * 0.3,
    "div": lambda x, y: (x / (y + 3)) / 2,
    "neg abs": lambda x, y: (-x).abs() + y.abs(),
    "reciprocal": lambda x, y: (x + 3).reciprocal() * y,
    "relu": lambda x, y: F.relu(x) + F.relu(y),
    "maximum": lambda x, y: torch.maximum(x, y) + torch.minimum(x, y),
    "where": lambda x, y: torch.where(x > y, x, y) * 2,
    "compare": lambda x, y: ((x < y) | (x >= 1)) & ~(y == 0),
    "masked fill": lambda x, y: (x + 1).masked_fill(y > 0, 2.0),
    "threshold": lambda x, y: torch.ops.aten.threshold_backward(x + 1, y, 0.25),
    "clone": lambda x, y: (x + 1).clone() + y,
}
CLOSE: dict[str, Callable[..., torch.Tensor]] = {
    "add alpha": lambda x, y: torch.add(x, y, alpha=3) * 2,  # eager fuses it in vectors, and not in what is left over
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5) + 1,
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y + 3, value=0.5) + 1,
    "lerp": lambda x, y: torch.lerp(x, y, 0.25) + 1,
    "sqrt": lambda x, y: (x * x).sqrt() + y,
    "rsqrt": lambda x, y: (x * x + 1).rsqrt() + y,
    "exp": lambda x, y: (x + y).exp() * 2,
    "tanh": lambda x, y: (x * 3).tanh() * 2,
    "erf": lambda x, y: (x + y).erf() * 2,
    "sigmoid": lambda x, y: (x + y).sigmoid() * 2,
    "silu": lambda x, y: F.silu(x + y) * 2,
    "gelu": lambda x, y: F.gelu(x + y) * 2,
    "gelu tanh": lambda x, y: F.gelu(x + y, approximate="tanh") * 2,
    "gelu backward": lambda x, y: torch.ops.aten.gelu_backward(x + 1, y) * 2,
    "silu backward": lambda x, y: torch.ops.aten.silu_backward(x + 1, y) * 2,
    "tanh backward": lambda x, y: torch.ops.aten.tanh_backward(x + 1, y.tanh()) * 2,
    "sigmoid backward": lambda x, y: torch.ops.aten.sigmoid_backward(x + 1, y.sigmoid()) * 2,
    "dropout backward": lambda x, y: torch.ops.aten.native_dropout_backward(x + 1, y > 0, 2.0) * 2,
}
# Relative to the values' own size; eager rounds at other places where it vectorises otherwise.
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-15, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def noise(size: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def both(f: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eager's result and ours, which must come from generated kernels."""
    want = f(*inputs)
    got, rose = counted(lambda: f(*(x.to(D) for x in inputs)).cpu(), "kernels_run", "fallbacks")
    assert rose == {"kernels_run": 1, "fallbacks": 0}
    assert got.dtype == want.dtype and got.stride() == want.stride()
    return want, got


def assert_close(want: torch.Tensor, got: torch.Tensor, slack: float = 1) -> None:
    tolerance = slack * TOLERANCE[want.dtype]
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", EXACT)
def test_same_bits(name: str, dtype: torch.dtype) -> None:
    for i, size in enumerate(SIZES):
        want, got = both(EXACT[name], noise(size, dtype, i), noise(size, dtype, i + 50))
        assert torch.equal(want, got), size


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float16), ids=str)
@pytest.mark.parametrize("name", CLOSE)
def test_close(name: str, dtype: torch.dtype) -> None:
    for i, size in enumerate(SIZES):
        slack = 4 if name == "gelu" else 1  # eager's, from oneDNN, is the less accurate one
        assert_close(*both(CLOSE[name], noise(size, dtype, i), noise(size, dtype, i + 50)), slack)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.transpose(0, 2),
    "every second": lambda x: x[..., ::2],
    "every second row": lambda x: x[:, ::2],
    "broadcast row": lambda x: x[:1].expand_as(x),
    "broadcast column": lambda x: x[..., :1].expand_as(x),
    "one number": lambda x: x[0, 0, 0],
    "offset": lambda x: x[1:, 1:, 1:],
}


def layout_pairs() -> list[tuple[str, str]]:
    """Those whose sizes broadcast."""
    x, found = torch.empty(6, 7, 18), []
    for a, b in itertools.product(LAYOUTS, repeat=2):
        sizes = itertools.zip_longest(reversed(LAYOUTS[a](x).shape), reversed(LAYOUTS[b](x).shape), fillvalue=1)
        if all(m == n or 1 in (m, n) for m, n in sizes):
            found.append((a, b))
    return found


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool), ids=str)
@pytest.mark.parametrize(("a", "b"), layout_pairs())
def test_layouts(a: str, b: str, dtype: torch.dtype) -> None:
    def value(seed: int) -> torch.Tensor:
        x = noise((6, 7, 18), torch.float32, seed)
        return x > 0 if dtype is torch.bool else (x * 10).to(dtype)

    x, y = LAYOUTS[a](value(1)), LAYOUTS[b](value(2))
    f = (lambda x, y: (x | y) ^ y) if dtype is torch.bool else (lambda x, y: (x + y) * x)
    want = f(x, y)
    got = f(x.to(D), y.to(D)).cpu()
    assert torch.equal(want, got) and want.stride() == got.stride()


def test_special_values() -> None:
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 1.0, -1.0]
    x, y = (t.contiguous() for t in torch.tensor(list(itertools.product(special, special))).unbind(1))
    for name, f in EXACT.items():
        want, got = both(f, x, y)
        same = (want == got) | ((want != want) & (got != got))
        assert same.all(), (name, x[~same], y[~same], want[~same], got[~same])
        if want.is_floating_point():
            zero = (want == 0) & (got == 0)
            assert torch.equal(want[zero].signbit(), got[zero].signbit()), name


@pytest.mark.parametrize("f", (torch.exp, torch.tanh, torch.erf, torch.sigmoid), ids=lambda f: f.__name__)
def test_functions_within_two_units_of_the_last_place(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
    lowest = -87 if f is torch.sigmoid else -104  # eager's 1 / (1 + exp(-x)) is 0 below
    x = torch.cat(
        [torch.linspace(lowest, 90, 200_001), torch.linspace(-5, 5, 200_001), noise((100_000,), torch.float32, 0)]
    )
    exact = f(x.double())
    got = (f(x.to(D)) * 1.0).cpu()
    want = exact.float()
    unit = torch.nextafter(want.abs(), torch.tensor(float("inf"))) - want.abs()
    finite = want.isfinite()
    error = ((got.double() - exact).abs() / unit.double())[finite]
    assert torch.equal(got[~finite], want[~finite])
    assert error.max() < (2.5 if f is torch.sigmoid else 1.5), error.max()


def test_tails_touch_nothing_outside() -> None:
    for n in range(1, 70):
        whole = torch.full((n + 64,), 7.0, device=D)
        part = whole[32 : 32 + n]
        part.add_(1).mul_(2)
        assert whole.tolist() == [7.0] * 32 + [16.0] * n + [7.0] * 32


def test_integers_wrap() -> None:
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        limits = torch.iinfo(dtype)
        x = torch.tensor([limits.min, limits.max, 0, 1, limits.max // 2 + 1], dtype=dtype)
        want, got = both(lambda x: (x + x) * 3 - 1, x)
        assert torch.equal(want, got), dtype


def test_two_threads_compute() -> None:
    """Large work is shared; results do not depend on how."""
    x = noise((1 << 20,), torch.float32, 0)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(F.gelu(x.to(D) * 2).cpu())
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_rows_name_what_the_schemas_name() -> None:
    """A row whose op or argument is misspelt would never be used, and nothing else would tell."""
    text = (under_test.ROOT / "src/ops/lowering_table.cpp").read_text()
    macros = dict.fromkeys(re.findall(r'^ {6}\{"(\w+)", "[\w, ]+", ', text, re.MULTILINE))
    functions = {*macros, "fma", "exp", "tanh", "erf", "sqrt", "abs", "min", "max"}
    schemas = {
        schema.name + ("." + schema.overload_name if schema.overload_name else ""): schema
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
    }
    rows = re.findall(r'\{"(aten::[\w.]+)",\s*"([^"]+)"', text)
    assert len(rows) > 80
    for op, expression in rows:
        names = {argument.name for argument in schemas[op].arguments}
        assert set(re.findall(r"[a-zA-Z_]\w*", expression)) - functions <= names, op


def test_a_new_size_compiles_nothing() -> None:
    def run(n: int) -> None:
        ((torch.ones(n, 8, device=D) + 1) * torch.ones(8, device=D)).cpu()

    run(5)
    _, rose = counted(lambda: [run(n) for n in range(6, 40)], "kernels_compiled")
    assert rose == {"kernels_compiled": 0}


def test_a_new_number_compiles_and_plans_nothing() -> None:
    x = torch.ones(100, device=D)

    def run(rate: float) -> None:
        ((x + rate) * rate).cpu()

    run(0.5)  # this graph also makes x
    run(0.5)
    _, rose = counted(lambda: [run(i / 7) for i in range(20)], "kernels_compiled", "graphs_planned")
    assert rose == {"kernels_compiled": 0, "graphs_planned": 0}
