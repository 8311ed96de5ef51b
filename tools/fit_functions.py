#!/usr/bin/env python3
"""Derives the polynomials of src/codegen/llvm/functions.cpp and checks them (needs mpmath, numpy; run by hand).

    python tools/fit_functions.py

Least squares at Chebyshev nodes, iteratively reweighted towards the largest relative error (Lawson's algorithm), then
rounded to 32-bit floats; errors in units of the last place come from evaluating in float32 with fused multiply-add
against mpmath.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np

mp.mp.dps = 40


def nodes(a: float, b: float, n: int = 400) -> np.ndarray:
    k = np.arange(n)
    return (a + b) / 2 + (b - a) / 2 * np.cos(np.pi * (k + 0.5) / n)


def lawson(x: np.ndarray, columns: list[np.ndarray], y: np.ndarray, scale: np.ndarray, rounds: int = 60) -> np.ndarray:
    """Coefficients c with the largest |sum(c * columns) - y| * scale about least."""
    a, weight = np.stack(columns, 1), np.ones_like(x) / len(x)
    c = np.zeros(a.shape[1])
    for _ in range(rounds):
        root = np.sqrt(weight) * scale
        c = np.linalg.lstsq(a * root[:, None], y * root, rcond=None)[0]
        error = np.abs(a @ c - y) * scale
        weight = weight * (error + error.max() * 1e-3)
        weight /= weight.sum()
    return c


def exact(f, x: np.ndarray) -> np.ndarray:
    return np.array([float(f(mp.mpf(float(v)))) for v in x])


def fma(a, b, c):
    return (a.astype(np.float64) * np.float64(b) + np.float64(c)).astype(np.float32)


def horner(c, x):
    r = np.full_like(x, np.float32(c[-1]))
    for k in c[-2::-1]:
        r = fma(r, x, np.float32(k))
    return r


def ulps(f, got: np.ndarray, x: np.ndarray) -> float:
    want = exact(f, x)
    return float((np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))).max())


def show(name: str, c: np.ndarray) -> None:
    print(f"{name}: " + ", ".join(f"{float(np.float32(v)):.9g}f" for v in c))


def exp_float(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    """As the generated code does it, without the ends of the range."""
    n = np.rint(x.astype(np.float64) * np.float64(np.float32(1.4426950408889634))).astype(np.float32)
    r = fma(n, np.float32(-0.693359375), x)
    r = fma(n, np.float32(2.12194440e-4), r)
    p = fma(horner(c, r), (r * r), r)
    return np.ldexp((p + np.float32(1)).astype(np.float32), n.astype(int)).astype(np.float32)


def main() -> None:
    rng = np.random.default_rng(0)
    half = np.log(2) / 2 * 1.02
    x = nodes(-half, half)
    # exp(r) = 1 + r + r^2 * P(r)
    y = exact(lambda v: (mp.exp(v) - 1 - v) / v**2 if v else mp.mpf(1) / 2, x)
    e = lawson(x, [x**k for k in range(5)], y, x**2 / np.exp(x))
    show("exp", e)
    t = rng.uniform(-87, 88, 20000).astype(np.float32)
    print("   ulp", ulps(mp.exp, exp_float(t, e), t))

    # tanh(x) = x + x^3 * P(x^2), |x| < 0.625
    x = nodes(1e-3, 0.625)
    s = x * x
    y = exact(lambda v: (mp.tanh(v) - v) / v**3, x)
    c = lawson(x, [s**k for k in range(5)], y, x**3 / np.tanh(x))
    show("tanh", c)
    t = rng.uniform(-0.625, 0.625, 20000).astype(np.float32)
    q = (t * t).astype(np.float32)
    print("   ulp", ulps(mp.tanh, fma((horner(c, q) * q).astype(np.float32), t, t), t))
    t = rng.uniform(0.625, 10, 20000).astype(np.float32)
    g = (np.float32(1) - np.float32(2) / (exp_float((t + t), e) + np.float32(1))).astype(np.float32)
    print("   ulp, larger x", ulps(mp.tanh, g, t))

    # erf(x) = x + x * P(x^2), |x| < 0.92
    x = nodes(1e-3, 0.93)
    s = x * x
    y = exact(lambda v: mp.erf(v) / v - 1, x)
    c = lawson(x, [s**k for k in range(7)], y, x / exact(mp.erf, x))
    show("erf near 0", c)
    t = rng.uniform(-0.92, 0.92, 20000).astype(np.float32)
    q = (t * t).astype(np.float32)
    print("   ulp", ulps(mp.erf, fma(horner(c, q), t, t), t))
    # erf(x) = 1 - exp(-x + x * P(x)), 0.92 <= x < 4
    x = nodes(0.9, 4.0)
    y = exact(lambda v: mp.log(mp.erfc(v)) / v + 1, x)
    c = lawson(x, [x**k for k in range(8)], y, x * exact(mp.erfc, x))
    show("erf beyond", c)
    t = rng.uniform(0.92, 4.0, 20000).astype(np.float32)
    z = fma(horner(c, t), t, -t)
    print("   ulp", ulps(mp.erf, (np.float32(1) - exp_float(z, e)).astype(np.float32), t))


if __name__ == "__main__":
    main()
