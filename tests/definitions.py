"""Oracles: definitions of the paper, computed from sorted values, for tests of several packages."""


def tkml_by_definition(true, f, k, two_sided):
    """The loss of one row, from its sorted scores."""
    order = sorted(f, reverse=True)
    if not true.any() or len(f) <= k or (two_sided and k < true.sum() == len(f)):
        return 0.0
    if two_sided and true.sum() > k:
        return max(0.0, 1 + max(f[~true]) - sorted(f[true], reverse=True)[k - 1])
    return max(0.0, 1 + order[k] - min(f[true]))
