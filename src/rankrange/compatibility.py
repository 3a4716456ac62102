"""Private helpers of scikit-learn that have no public counterpart. Only this module imports them.

`tests/test_package.py` checks that no other module imports private names. May import: nothing of this package.
"""

from __future__ import annotations

from sklearn.base import _clone_parametrized as clone_parametrized
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_feature_names as check_feature_names
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_n_features as check_n_features
from sklearn.utils.validation import _check_sample_weight as check_sample_weight
from sklearn.utils.validation import _check_y as check_y
from sklearn.utils.validation import _num_samples as num_samples

try:
    from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled
except ImportError:  # the location in older versions of scikit-learn
    from sklearn.utils._metadata_requests import _routing_enabled as routing_enabled

__all__ = [
    "Interval",
    "StrOptions",
    "check_feature_names",
    "check_method_params",
    "check_n_features",
    "check_sample_weight",
    "check_y",
    "clone_parametrized",
    "num_samples",
    "routing_enabled",
    "safe_indexing",
]
