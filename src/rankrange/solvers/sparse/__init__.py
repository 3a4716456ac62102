"""Elastic nets with a ranked range: the convex problem of the kept rows, and the search for the rows to keep.

The objective is C * sum of the kept losses + (1 - l1_ratio)/2 ||coef||^2 + l1_ratio ||coef||_1, with intercepts that
are not penalised. For classes it is that of scikit-learn's LogisticRegression(C, l1_ratio) on the rows that are kept.
"""

from .elastic_net import ElasticNet, Net
from .search import Cut, follow, inner_rows, near_the_median, trimmed_net

__all__ = ["Cut", "ElasticNet", "Net", "follow", "inner_rows", "near_the_median", "trimmed_net"]
