"""Estimators for Dask arrays and dataframes. The data stay on the workers.

Only coefficients, sums and a sample of the rows are sent between the workers and the client.

```python
from distributed import Client
from rankrange.dask import AoRRClassifier

with Client() as client:                     # or Client("scheduler:8786")
    model = AoRRClassifier(m=0.1, k=1.0).fit(X, y)      # dask arrays, or a dataframe and a series
    labels = model.predict(X)                # lazy
    plain = model.to_local()                 # rankrange.AoRRClassifier
```
Needs `pip install 'rankrange[dask]'`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import dask
    import dask.array
except ImportError as error:  # pragma: no cover - the tests have Dask
    raise ImportError(
        "rankrange.dask needs Dask, which is not installed; run: pip install 'rankrange[dask]'"
    ) from error


from . import estimators as _local
from .compatibility import clone_parametrized
from .shards.dask_engine import DaskShards, LostDataError, frame_chunks
from .shards.fit import fit_on_shards

__all__ = ["AoRRClassifier", "AoRRRegressor", "LostDataError", "find_label_issues"]


def find_label_issues(X: Any, y: Any, *, client: Any = None, **options: Any) -> Any:
    """`rankrange.find_label_issues` for Dask arrays and dataframes; all data but a sample stay on the workers.

    Parameters
    ----------
    X : dask array or dataframe
        Features.
    y : dask array or series
        Labels, with the same chunks of rows as X.
    client : distributed.Client, optional
        The client to compute with; by default the current one.
    **options
        Parameters of `rankrange.find_label_issues` that work for data larger than memory: estimator (an
        AoRRClassifier), cv (2 to 4), trees, random_state, verbose.

    Returns
    -------
    LabelIssues
        The suspects, worst first. The names of rows are their positions from 0.

    Examples
    --------
    >>> import dask.array as da
    >>> from rankrange.dask import find_label_issues
    >>> X = da.random.default_rng(0).normal(size=(20_000, 3), chunks=(6_000, 3))
    >>> y = (X[:, 0] > 0) ^ (da.arange(20_000, chunks=6_000) % 20 == 7)  # every 20th label is wrong
    >>> issues = find_label_issues(X, y, random_state=0)
    >>> bool((issues["row"][:100] % 20 == 7).all())
    True
    """
    from .shards.label_issues import find_on_shards

    return find_on_shards(DaskShards(X, y, None, client), **options)


class _OnDask:
    """Mixin of the Dask estimators: `fit` computes on the workers, and predictions are lazy."""

    _local_class: Any
    client: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to Dask collections with the same chunks of rows.

        Parameters
        ----------
        X : dask array or dataframe
            Features. Chunk lengths may be unknown; chunks may be empty or hold sparse matrices.
        y : dask array or series
            Labels or targets.
        sample_weight : dask array or series, optional
            Weights of the rows; weight 2 equals the row twice.

        Returns
        -------
        self
        """
        return fit_on_shards(DaskShards(X, y, sample_weight, self.client), self)

    def __sklearn_clone__(self) -> Any:
        """Clone with the same client. The client is not a parameter, because `clone` would copy the connection."""
        copy = clone_parametrized(self)
        if self.client is not None:
            copy.client = self.client
        return copy

    def to_local(self) -> Any:
        """Return the fitted model as an estimator for data in memory, such as `rankrange.AoRRClassifier`.

        Its `dropped_` is an array in memory, which takes one pass over the data.
        """
        local = self._without_rows()
        if hasattr(self, "dropped_"):
            local.dropped_ = np.asarray(self.dropped_)
        return local

    def _without_rows(self) -> Any:
        local = self._local_class(**self.get_params())  # type: ignore[attr-defined]
        learnt = {name: value for name, value in vars(self).items() if name.endswith("_") and name != "dropped_"}
        vars(local).update(learnt)
        return local

    def _lazily(self, method: str, X: Any, n_columns: int | None, dtype: Any) -> Any:
        """Call `method` of the in-memory estimator lazily on each chunk, or directly if X is in memory.

        The result has the shape (n, n_columns), or (n,) if `n_columns` is None, and this dtype.
        """
        local = self._without_rows()
        if not hasattr(X, "__dask_graph__"):
            return getattr(local, method)(X)
        frame = hasattr(X, "columns")
        lengths = [np.nan] * X.npartitions if frame else X.chunks[0]
        chunks = frame_chunks(X) if frame else X.to_delayed().ravel()
        apply = dask.delayed(_applied, pure=True)
        model = dask.delayed(local)
        width = () if n_columns is None else (n_columns,)
        parts = [
            dask.array.from_delayed(apply(model, method, chunk, width, dtype), (length, *width), dtype=dtype)
            for chunk, length in zip(chunks, lengths, strict=True)
        ]
        return dask.array.concatenate(parts, allow_unknown_chunksizes=True)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


def _applied(model: Any, method: str, X: Any, width: tuple[int, ...], dtype: Any) -> Any:
    return getattr(model, method)(X) if X.shape[0] else np.empty((0, *width), dtype=dtype)


class AoRRClassifier(_OnDask, _local.AoRRClassifier):  # type: ignore[misc] # fit takes no validation rows
    """`rankrange.AoRRClassifier` for Dask arrays and dataframes.

    Parameters and attributes are those of that class, except that `dropped_` is a lazy Dask array and `n_passes_` is
    the number of passes over the data. These settings need data in memory: `solver`, `stratify`, `operations`,
    `warm_start`, `aggregate`, `l1_ratio`, `reweight`, `efficiency`, C=inf, k="adaptive", and loss="hinge" with more
    than two classes. The attribute `client` may be set to a distributed.Client, which `clone` keeps; otherwise the
    default client is used. The result is bitwise the same for all chunk sizes, numbers of workers and clusters with the
    same processors and NumPy version.

    Examples
    --------
    >>> import dask.array as da
    >>> from rankrange.dask import AoRRClassifier
    >>> X = da.random.default_rng(0).normal(size=(20_000, 3), chunks=(6_000, 3))
    >>> y = X[:, 0] > 0.5
    >>> model = AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(X, y)
    >>> model.predict(X)
    dask.array<concatenate, shape=(20000,), dtype=bool, chunksize=(6000,), chunktype=numpy.ndarray>
    """

    _local_class = _local.AoRRClassifier

    def predict(self, X: Any) -> Any:
        """Predicted labels; a lazy Dask array for a Dask collection."""
        return self._lazily("predict", X, None, self.classes_.dtype)

    def decision_function(self, X: Any) -> Any:
        """Confidence scores, (n,) or (n, n_classes); lazy for a Dask collection."""
        return self._lazily("decision_function", X, self._width(), self.coef_.dtype)

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities (n, n_classes); lazy for a Dask collection."""
        return self._lazily("predict_proba", X, len(self.classes_), self.coef_.dtype)

    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of `predict_proba`, (n, n_classes); lazy for a Dask collection."""
        return self._lazily("predict_log_proba", X, len(self.classes_), self.coef_.dtype)

    def _width(self) -> int | None:
        return None if len(self.classes_) == 2 else len(self.classes_)


class AoRRRegressor(_OnDask, _local.AoRRRegressor):  # type: ignore[misc] # fit takes no validation rows
    """`rankrange.AoRRRegressor` for Dask arrays and dataframes; see `rankrange.dask.AoRRClassifier`.

    Examples
    --------
    >>> import dask.array as da
    >>> from rankrange.dask import AoRRRegressor
    >>> X = da.random.default_rng(0).normal(size=(20_000, 3), chunks=(6_000, 3))
    >>> model = AoRRRegressor(m=0.1, k=1.0, C=1e6, random_state=0).fit(X, 2 * X[:, 0])
    >>> model.coef_.round(2)
    array([2., 0., 0.])
    """

    _local_class = _local.AoRRRegressor

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted targets; a lazy Dask array for a Dask collection. `return_std=True` raises an error."""
        if return_std:
            raise ValueError("return_std=True needs a fit to rows in memory, got one to a Dask collection")
        return self._lazily("predict", X, None, self.coef_.dtype)
