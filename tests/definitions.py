"""What tests of several packages share: a definition of the paper from sorted values, and a loss that is not ours."""

import pytest


def slow(*cases):
    """Cases of a parametrised test that the default run leaves out."""
    return [pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow) for case in cases]


def tkml_by_definition(true, f, k, two_sided):
    """The loss of one row, from its sorted scores."""
    order = sorted(f, reverse=True)
    if not true.any() or len(f) <= k or (two_sided and k < true.sum() == len(f)):
        return 0.0
    if two_sided and true.sum() > k:
        return max(0.0, 1 + max(f[~true]) - sorted(f[true], reverse=True)[k - 1])
    return max(0.0, 1 + order[k] - min(f[true]))


class GemanMcClure:
    """r^2 / (1 + r^2) with r = z - y: far rows pull less and less, so that it bends both ways."""

    targets = "numbers"
    convex = False

    def value(self, y, z):
        return (z - y) ** 2 / (1 + (z - y) ** 2)

    def value_and_derivative(self, y, z):
        return self.value(y, z), 2 * (z - y) / (1 + (z - y) ** 2) ** 2

    def curvature(self, y, z):
        return (2 - 6 * (z - y) ** 2) / (1 + (z - y) ** 2) ** 3
