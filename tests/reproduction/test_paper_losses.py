"""Every loss of the paper's algorithms and of the baselines against its definition for one row, and its slopes."""

import numpy as np
import pytest

from definitions import tkml_by_definition
from rankrange import algorithms
from reproduction import baselines


def largest(values, count):
    return sorted(values, reverse=True)[:count]


def lsep(y, z):
    return np.log(1 + np.exp(z[~y][:, None] - z[y][None]).sum())


def top_k_hinge(y, z, k):
    return max(0.0, np.mean(largest(z - z[y] + ~y, k)))


def tkml(y, z, k):
    return tkml_by_definition(y, z, k, two_sided=False)


def of_algorithm(loss):
    return lambda y, Z, *k: loss(Z, y, *k)


def exact_hinge(y, Z, k):
    return baselines.top_k_hinge(y, Z, k, 0.0)


# A loss: its labels, its function of all labels and scores, and its definition for one row.
LOSSES = {
    "logistic": ("signs", of_algorithm(algorithms._loss_of("logistic")), lambda y, z: np.log(1 + np.exp(-y * z[0]))),
    "hinge": ("signs", of_algorithm(algorithms._loss_of("hinge")), lambda y, z: max(0.0, 1 - y * z[0])),
    "softmax": ("classes", of_algorithm(algorithms._loss_of("softmax")), lambda y, z: np.log(np.exp(z).sum()) - z[y]),
    "one vs rest": ("sets", baselines.log_losses, lambda y, z: np.log(1 + np.exp(np.where(y, -z, z))).sum()),
    "LSEP": ("sets", baselines.pairwise_losses, lsep),
    **{f"TKML {k}": ("filled sets", of_algorithm(algorithms._tkml_losses), tkml, k) for k in range(1, 5)},
    **{
        f"top {k} hinge": ("masks", lambda y, z, k: baselines.top_k_hinge(y, z, k, 0.0), top_k_hinge, k) for k in (1, 3)
    },
}


def drawn_labels(kind, rng, n=200):
    classes, sets = rng.integers(5, size=n), rng.random((n, 5)) < 0.5
    sets[:2] = [[True], [False]]
    masks = np.eye(5, dtype=bool)[classes]
    named = {"signs": rng.choice([-1, 1], size=n), "classes": classes, "sets": sets, "masks": masks}
    return {**named, "filled sets": sets | masks}[kind]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_its_definition_and_its_slope_the_derivative(name):
    kind, of_all, of_row, *k = LOSSES[name]
    rng = np.random.default_rng(0)
    y = drawn_labels(kind, rng)
    Z, direction = 3 * rng.normal(size=(2, 200, 1 if kind == "signs" else 5))
    s, slope = of_all(y, Z, *k)
    ahead, here, behind = (
        [of_row(*row, *k) for row in zip(y, Z + e * direction, strict=True)] for e in (1e-7, 0, -1e-7)
    )
    np.testing.assert_allclose(s, here, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose((slope * direction).sum(axis=1), np.subtract(ahead, behind) / 2e-7, atol=1e-5)


@pytest.mark.parametrize("k", [1, 3])
def test_the_smoothed_top_k_hinge_lies_within_mu(k):
    rng = np.random.default_rng(2)
    masks = drawn_labels("masks", rng)
    Z, direction = rng.normal(size=(2, 200, 5))
    exact, (smooth, slope) = (baselines.top_k_hinge(masks, Z, k, mu) for mu in (0.0, 0.3))
    assert (smooth <= exact[0] + 1e-12).all()
    assert (smooth >= exact[0] - 0.3 - 1e-12).all()
    ahead, behind = (baselines.top_k_hinge(masks, Z + e * direction, k, 0.3)[0] for e in (1e-6, -1e-6))
    np.testing.assert_allclose((slope * direction).sum(axis=1), (ahead - behind) / 2e-6, atol=1e-7)
