"""The paper's data sets by name: `load("monk")` returns a scikit-learn Bunch, `names()` lists the names.

Monk, Titanic and the two toy sets are generated (`made`), from a rule, a contingency table and a seed. The others are
read (`files`) from the folder `data_home=` or, without it, the folder in the environment variable RANKRANGE_DATA
(docs/how-to/datasets.md describes its files). If the folder does not have them, they are fetched from OpenML. All files
are checked.

Values are those of the source, not scaled. Binary targets are 0 and 1, multi-label ones an indicator matrix.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sklearn.utils import Bunch

from .files import TABLES, DataNotFoundError, Store, load_mnist, load_table
from .made import MADE, TOYS, load_toy

__all__ = ["DataNotFoundError", "load", "names"]


def names() -> list[str]:
    """List the names of the data sets that `load` can load.

    Returns
    -------
    list of str
        Eleven names.

    Examples
    --------
    >>> from rankrange import datasets
    >>> datasets.names()[:3]
    ['monk', 'titanic', 'australian']
    """
    return [*MADE, *TABLES, "mnist", *TOYS]


def load(name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True, **options: Any) -> Bunch:
    """Load one of the paper's data sets.

    Values are those of the source, not scaled.

    Parameters
    ----------
    name : str
        One of `names()`.
    data_home : path, optional
        The folder of data files (docs/how-to/datasets.md describes them); by default that in the environment variable
        RANKRANGE_DATA, if it is set. Downloads from OpenML are stored in `data_home` if it is given, otherwise in
        scikit-learn's own folder.
    download : bool, default=True
        Whether to download from OpenML if the folder does not have the files.
    **options
        For the toy sets only: n_samples=200, n_outliers=1 and random_state=0, or source="paper" for the paper's own 200
        points, which are read from the folder. The paper's cases have 1, 2, 3, 4, 5, 10 and 20 outliers.

    Returns
    -------
    sklearn.utils.Bunch
        The data set, with data, target, feature_names, target_names, DESCR, `source` (its origin) and `verified` (how
        it was checked: "checksum", "made here" if it is generated, or "shape and class counts" for a copy from OpenML
        that differs from the data of the paper). mnist also has test_data and test_target, and its images are uint8, 0
        to 255, of shape (n, 784). The toy sets also have outliers (a mask of the rows), bayes_coef, bayes_intercept
        (class 1 if x @ coef + intercept > 0) and bayes_error, all three for the mixture without outliers.

    Raises
    ------
    DataNotFoundError
        If the folder does not have the data, and they cannot or may not be downloaded; the message contains the remedy.
    ValueError
        If the name or the value of an option is not allowed, or if a file or the copy from OpenML is damaged or has
        other contents.
    TypeError
        If an option is unknown or of the wrong type, or if the data set takes none.

    Examples
    --------
    >>> from rankrange import datasets
    >>> monk = datasets.load("monk")
    >>> monk.data.shape, int(monk.target.sum())
    ((432, 6), 228)
    """
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}; got {name!r}, choose one of these")
    if options and name not in TOYS:
        raise TypeError(f"only the toy sets take options, got {sorted(options)} for {name!r}; leave them out")
    home = data_home if data_home is not None else os.environ.get("RANKRANGE_DATA") or None
    folder = None if home is None else Path(home).expanduser()
    # Downloads go to `data_home`, but never to the shared folder of the environment variable.
    store = Store(folder, cache=None if data_home is None else str(folder), download=download)
    if name in TOYS:
        return load_toy(name, store, options)
    if name in MADE:
        return MADE[name]()
    return load_mnist(store) if name == "mnist" else load_table(name, store)
