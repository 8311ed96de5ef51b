"""Matrix products of 32-bit floats against float64: shapes around the blocks, layouts, threads."""

from __future__ import annotations

import pytest
import torch

from support import device as under_test

D = under_test.NAME
# rows, summands, columns; the blocks are 192 x 256 x 512, panels of 64 columns
SHAPES = [(128, 64, 256), (193, 257, 528), (17, 1000, 96), (1024, 33, 48), (192, 512, 512), (65, 4096, 80), (600, 256, 10)]


def matrix(rows: int, columns: int, transposed: bool, wider: bool) -> torch.Tensor:
    """Transposed in memory, or a part of a larger one, as asked for."""
    extra = 8 if wider else 0
    if transposed:
        return torch.randn(columns, rows + extra)[:, :rows].t()
    return torch.randn(rows, columns + extra)[:, :columns]


@pytest.mark.parametrize("wider", (False, True), ids=("dense", "part"))
@pytest.mark.parametrize("transposed", ((0, 0), (0, 1), (1, 0), (1, 1)), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product(shape: tuple[int, int, int], transposed: tuple[int, int], wider: bool) -> None:
    torch.manual_seed(0)
    m, k, n = shape
    a, b = matrix(m, k, bool(transposed[0]), wider), matrix(k, n, bool(transposed[1]), wider)
    got = (a.to(D) @ b.to(D)).cpu()
    exact = a.double() @ b.double()
    error = (got.double() - exact).abs().max()
    eager = ((a @ b).double() - exact).abs().max()
    # Chains of 256 summands, which may be longer than a library's.
    assert error <= max(3 * float(eager), 5e-7 * float(exact.abs().max()))
    assert got.stride() == (a @ b).stride()


def test_what_is_not_a_number_stays_in_its_row() -> None:
    a, b = torch.ones(64, 256), torch.ones(256, 128)
    a[3, 7], a[5, 9] = float("nan"), float("inf")
    got = (a.to(D) @ b.to(D)).cpu()
    assert got[3].isnan().all() and (got[5] == float("inf")).all()
    rest = [i for i in range(64) if i not in (3, 5)]
    assert (got[rest] == 256).all()


@pytest.mark.parametrize("shape", ((512, 256, 768), (96, 2048, 1024)), ids=str)
def test_the_same_bits_with_any_number_of_threads(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    m, k, n = shape
    a, b = torch.randn(m, k).to(D), torch.randn(k, n).to(D)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, threads):
            torch.set_num_threads(count)
            results.append((a @ b).cpu())
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(results[0].view(torch.int32), r.view(torch.int32)) for r in results)
