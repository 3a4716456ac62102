"""Elastic nets under a ranked range: the convex problem of kept rows (`elastic_net`) and the search over rows (`search`).

The objective is that of scikit-learn's LogisticRegression(C, l1_ratio) on the rows that are kept:
C * sum of losses + (1 - l1_ratio)/2 ||coef||^2 + l1_ratio ||coef||_1, with intercepts that are not penalised.
"""

from .elastic_net import ElasticNet, Net
from .search import Cut, trimmed_net

__all__ = ["Cut", "ElasticNet", "Net", "trimmed_net"]
