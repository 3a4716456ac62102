"""The paper's data sets: `load("monk")` returns a scikit-learn Bunch with `data` and `target`, not scaled.

Monk, Titanic and the two toy sets are generated. The others are read from the folder that the environment variable
RANKRANGE_DATA names (reproduction/README.md lists its files) and checked by SHA-256. With `download=True` a set that
the folder does not have is fetched from OpenML; `verified` then says whether its rows are exactly those of the folder.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from sklearn.datasets import fetch_openml
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch

Array = Any


class _Table(NamedTuple):
    """SHA-256 of the unpacked file and of its sorted rows, number of features and labels, number at OpenML, class 1."""

    sha256: str
    row_sha256: str
    features: int
    labels: int
    openml: int
    positive: str = "TRUE"


TABLES = {
    "australian": _Table(
        "aa27d75062169688759b06311ab6f26e1645b9948a8cea7839cab920c2f81297",
        "55bdaa62fbb5da9c9b8807f3a6bb15ac07e11a1f36f5fe2144f24cba68ac6cb4",
        *(14, 1, 40981, "1"),
    ),
    "phoneme": _Table(
        "da41e76be235214a460fc512e41b3834894ff628cae54de434228376d7be6ee9",
        "d9ac5abdcc1dfc5d4030977ee108efbef7cafa6b12f6af9981da9c81df193380",
        *(5, 1, 1489, "2"),
    ),
    "splice": _Table(
        "3ff34074cb3d7ad9d894429674c815553b3b9ac48f2ef028895c4b7a8aec62ac",
        "17a423cb9c7177be151302e3fe42783a5972ae7e6074dedc59340fb4d990cf18",
        *(60, 1, 46, "N"),
    ),
    "emotions": _Table(
        "0dfcb6f8e96077dc979ab2761c52248cd4cb84b7436ee315f6303f5a2fb988c8",
        "26a9211fb95d043c7878c03c87d1c5e376c3fb02705ecdfe35eaf3f3c3051bf5",
        *(72, 6, 40589),
    ),
    "scene": _Table(
        "c9d15cdcc7f59c4d66b562d0e421cbc1ca27b5e2e9b8049b980c6149590565b7",
        "e34b1fe1a4927f08daab76fee8bc7eda441e50840e7bf130e7d6f76e7abbefa6",
        *(294, 6, 40595),
    ),
    "yeast": _Table(
        "50e2b264cf9e6c72aa6868fb2cc7e107b3faa456168eace638215b88034dddbf",
        "44683b3c9c2da1021004ecc8630dab0fce975c4dab3b903986b94712724428c6",
        *(103, 14, 40597),
    ),
}
_MNIST = {
    "train-images-idx3": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def names() -> list[str]:
    """The names that `load` takes."""
    return ["monk", "titanic", *TABLES, "mnist", *TOYS]


def load(name: str, *, download: bool = False, **options: Any) -> Bunch:
    """One of the paper's data sets; a FileNotFoundError says what is missing.

    Targets are 0 and 1, an indicator matrix, or digits. MNIST also has `test_data` and `test_target`. The toy sets take
    n_samples=200, n_outliers=1 and random_state=0, or source="paper" for the paper's own points; they also have
    `outliers`, a mask, and the Bayes rule of the mixture without outliers: class 1 if x @ bayes_coef + bayes_intercept
    > 0, with `bayes_error`.
    """
    if name in TOYS:
        return _toy(name, **options)
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}; got {name!r}")
    if options:
        raise TypeError(f"only the toy sets take options, got {sorted(options)} for {name!r}; leave them out")
    if name in ("monk", "titanic"):
        return _monk() if name == "monk" else _titanic()
    return _mnist(download) if name == "mnist" else _table(name, download)


def split(name: str, seed: int, shares: tuple[float, ...] = (0.5, 0.25, 0.25), scale_on: str = "train") -> list[Any]:
    """Random parts [(X, y), ...] of a data set, standardised by the first part or, with scale_on="all", by all rows."""
    bunch = load(name)
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    cuts = np.floor(np.cumsum(shares)[:-1] * len(order)).astype(int)
    parts = np.split(order, cuts)
    scale = StandardScaler().fit(bunch.data if scale_on == "all" else bunch.data[parts[0]]).transform
    return [(scale(bunch.data[rows]), bunch.target[rows]) for rows in parts]


# ---- files and OpenML ------------------------------------------------------------------------------------------------


def _folder() -> Path | None:
    home = os.environ.get("RANKRANGE_DATA")
    return Path(home).expanduser() if home else None


def _read(file: str, sha256: str) -> bytes | None:
    """The unpacked content of a file of the folder; None if it is not there, an error if it is another one."""
    folder = _folder()
    if folder is None or not (folder / file).is_file():
        return None
    try:
        content = gzip.decompress((folder / file).read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{folder / file} must be a complete gzip file, got: {error}; replace it") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"{folder / file} must have the SHA-256 {sha256}, got {found}; replace it with a good copy")
    return content


def _missing(files: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"the folder named by RANKRANGE_DATA must hold {files}, got {_folder()}; put it there, or fetch it from OpenML "
        "with --download (load(name, download=True))"
    )


def _fetch(number: int, download: bool, files: str) -> Bunch:
    if not download:
        raise _missing(files)
    return fetch_openml(data_id=number, as_frame=True, parser="pandas")


def _table(name: str, download: bool) -> Bunch:
    table, file = TABLES[name], f"{name}.csv.gz"
    content = _read(file, table.sha256)
    if content is not None:
        values = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)
        data, target = np.ascontiguousarray(values[:, : table.features]), values[:, table.features :].astype(np.int64)
        verified = True
    else:
        frames = _fetch(table.openml, download, file)
        data, target = _as_in_the_folder(name, frames.data, frames.target)
        rows = np.column_stack([data, target]).astype("<f8") + 0.0  # no negative zeros
        verified = hashlib.sha256(rows[np.lexsort(rows.T[::-1])].tobytes()).hexdigest() == table.row_sha256
    return Bunch(data=data, target=target if table.labels > 1 else target.ravel(), verified=verified)


_BASES, _BASE_CODES = np.array(list("ACGT")), np.array([1.0, 3.0, 2.0, 4.0])  # LIBSVM's integers
_PHONEME_MEAN = (0.8189572538860103, 1.2588019985196133, 0.7647316802368606, 0.39874259807549883, 0.07861880088823105)
_PHONEME_STD = (0.858653605519687, 0.8509786074450377, 0.9253507590045482, 0.7964573251071655, 0.5755709556653436)


def _as_in_the_folder(name: str, X: Any, y: Any) -> tuple[Array, Array]:
    """OpenML's frames as the arrays of the paper's copy: letters to numbers, z-scores to values, labels to 0 and 1."""
    target = (np.char.upper(y.to_numpy().astype(str)) == TABLES[name].positive).astype(np.int64)
    if name == "splice":  # rows with ambiguous letters are not in the paper's copy
        letters = X.to_numpy().astype(str)
        certain = np.isin(letters, _BASES).all(axis=1)
        return _BASE_CODES[np.searchsorted(_BASES, letters[certain])], target[certain]
    data = np.column_stack([X[column].to_numpy().astype(str).astype(np.float64) for column in X.columns])
    return (np.round(data * _PHONEME_STD + _PHONEME_MEAN, 3) if name == "phoneme" else data), target


def _mnist(download: bool) -> Bunch:
    contents = [_read(f"mnist/{file}-ubyte.gz", sha256) for file, sha256 in _MNIST.items()]
    if None not in contents:
        images, digits, test_images, test_digits = (
            np.frombuffer(content or b"", np.uint8, offset=16 if "images" in file else 8)
            for content, file in zip(contents, _MNIST, strict=True)
        )
        images, test_images = images.reshape(-1, 784), test_images.reshape(-1, 784)
    else:  # OpenML has the training rows first, in the original order
        frames = _fetch(554, download, "mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz")
        images, test_images = np.split(frames.data.to_numpy().astype(np.uint8), [60_000])
        digits, test_digits = np.split(frames.target.to_numpy().astype(str).astype(np.int64), [60_000])
    return Bunch(
        data=images,
        target=digits.astype(np.int64),
        test_data=test_images,
        test_target=test_digits.astype(np.int64),
        verified=None not in contents,
    )


# ---- generated sets --------------------------------------------------------------------------------------------------


def _monk() -> Bunch:
    """MONK-3 without noise on all 432 cells of its grid, in the order of UCI's monks-3.test."""
    sizes = (3, 3, 2, 3, 4, 2)
    grid = np.array(list(itertools.product(*(range(1, size + 1) for size in sizes))), dtype=np.float64)
    _, a2, _, a4, a5, _ = grid.T
    target = ((a5 == 3) & (a4 == 1)) | ((a5 != 4) & (a2 != 3))
    return Bunch(data=grid, target=target.astype(np.int64), verified=True)


# Class, age and sex as KEEL codes them, and how many died and survived.
_FIRST, _SECOND, _THIRD, _CREW = -1.87, -0.923, 0.0214, 0.965
_ADULT, _CHILD, _FEMALE, _MALE = -0.228, 4.38, -1.92, 0.521
_TITANIC = {
    (_FIRST, _CHILD, _MALE): (0, 5),
    (_FIRST, _CHILD, _FEMALE): (0, 1),
    (_FIRST, _ADULT, _MALE): (118, 57),
    (_FIRST, _ADULT, _FEMALE): (4, 140),
    (_SECOND, _CHILD, _MALE): (0, 11),
    (_SECOND, _CHILD, _FEMALE): (0, 13),
    (_SECOND, _ADULT, _MALE): (154, 14),
    (_SECOND, _ADULT, _FEMALE): (13, 80),
    (_THIRD, _CHILD, _MALE): (35, 13),
    (_THIRD, _CHILD, _FEMALE): (17, 14),
    (_THIRD, _ADULT, _MALE): (387, 75),
    (_THIRD, _ADULT, _FEMALE): (89, 76),
    (_CREW, _ADULT, _MALE): (670, 192),
    (_CREW, _ADULT, _FEMALE): (3, 20),
}


def _titanic() -> Bunch:
    rows = [(*cell, label) for cell, counts in _TITANIC.items() for label in (0, 1) for _ in range(counts[label])]
    # Shuffled with a fixed seed: folds of consecutive rows would otherwise contain only a few cells.
    values = np.array(rows)[np.random.RandomState(0).permutation(len(rows))]
    return Bunch(data=np.ascontiguousarray(values[:, :3]), target=values[:, 3].astype(np.int64), verified=True)


@dataclass(frozen=True)
class _Toy:
    """A mixture of Gaussians in the plane with centres (c, c), and outliers of class 1; its Bayes rule is linear."""

    modes: tuple[tuple[float, float], ...]  # clusters of class 1: (c, share of the class)
    other: float  # c of class 0
    share: float  # of class 0 among all rows
    outlier: tuple[float, float]  # the centre of the outliers of class 1
    file: str  # the paper's own points, whose first row is the outlier
    sha256: str
    paper_slope: float  # of the Bayes rule of the paper's own points: class 1 if slope * (x1 + x2) + 1 > 0
    paper_error: float  # its error
    spread: float = 0.22
    outlier_spread: float = 0.1

    def bayes(self) -> tuple[float, float]:
        """The threshold t of the Bayes rule "class 1 if x1 + x2 < t", and the error of the rule, as a share."""
        centres, shares = np.sqrt(2.0) * np.array([c for c, _ in self.modes]), np.array([p for _, p in self.modes])
        other, s = np.sqrt(2.0) * self.other, self.spread  # along the diagonal, where the centres lie

        def log_odds(u: float) -> float:
            of_one = logsumexp(-((u - centres) ** 2) / (2 * s**2), b=(1 - self.share) * shares)
            return float(of_one + (u - other) ** 2 / (2 * s**2) - math.log(self.share))

        u = brentq(log_odds, centres.max(), other, xtol=1e-14)  # the odds decrease in u, so there is one root
        wrong_one = (1 - self.share) * shares @ ndtr((centres - u) / s)
        return math.sqrt(2.0) * u, float(wrong_one + self.share * ndtr((u - other) / s))

    def draw(self, n_samples: int, n_outliers: int, random_state: int) -> tuple[Array, Array]:
        """Points and classes; the outliers come first, class 0 last."""
        n_zero = max(1, round(self.share * n_samples))
        n_clean = n_samples - n_zero - n_outliers
        if n_outliers < 0 or n_clean < 1:
            raise ValueError(
                f"need n_outliers >= 0 and a clean row of each class, got n_outliers={n_outliers} of "
                f"n_samples={n_samples} with {n_zero} in class 0; lower n_outliers or raise n_samples"
            )
        counts = [round(share * n_clean) for _, share in self.modes[1:]]
        counts = [n_clean - sum(counts), *counts, n_zero]
        centres = np.repeat([c for c, _ in self.modes] + [self.other], counts)[:, None]
        rng = np.random.RandomState(random_state)
        far = self.outlier + self.outlier_spread * rng.standard_normal((n_outliers, 2))
        data = np.concatenate([far, centres + self.spread * rng.standard_normal((n_clean + n_zero, 2))])
        return data, (np.arange(n_samples) < n_samples - n_zero).astype(np.int64)


TOYS = {
    "toy_multimodal": _Toy(
        modes=((0.0, 0.9), (1.0, 0.1)),
        other=2.0,
        share=0.5,
        outlier=(2.0, 2.5),
        file="synthetic_data4_1.csv.gz",
        sha256="f4af8e0ac2b8872febefdb2290631eb6eae69fe271153788f35f028da4575666",
        paper_slope=-0.3472222222222222,
        paper_error=0.00018077714750150268,
    ),
    "toy_imbalanced": _Toy(
        modes=((0.0, 1.0),),
        other=1.0,
        share=0.02,
        outlier=(1.0, 1.15),
        file="synthetic_data6_1.csv.gz",
        sha256="39b9db2d2da038ef5e179480b7672c086d65fc24f36793ba9271eeb01e60394f",
        paper_slope=-0.8403361344537812,
        paper_error=0.00014419119682723122,
    ),
}


def _toy(
    name: str, source: str = "generated", n_samples: int = 200, n_outliers: int = 1, random_state: int = 0
) -> Bunch:
    toy = TOYS[name]
    if source == "paper":
        content = _read(toy.file, toy.sha256)
        if content is None:
            raise _missing(toy.file)
        values = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1)
        data, target, n_outliers = values[:, :2], (values[:, 2] == 1).astype(np.int64), 1
        slope, intercept, error = toy.paper_slope, 1.0, toy.paper_error
    else:
        data, target = toy.draw(n_samples, n_outliers, random_state)
        slope, (intercept, error) = -1.0, toy.bayes()
    return Bunch(
        data=data,
        target=target,
        outliers=np.arange(len(data)) < n_outliers,
        bayes_coef=np.array([slope, slope]),
        bayes_intercept=intercept,
        bayes_error=error,
        verified=True,
    )
