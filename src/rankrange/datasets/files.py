"""Data sets that are read from a folder or from OpenML, with checks."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import math
import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray
from sklearn.utils import Bunch


class DataNotFoundError(FileNotFoundError):
    """A data set is not in the given folder, and cannot or may not be downloaded; the message contains the remedy."""


def bunch(name: str, data: Any, target: Any, features: Any, labels: Any, source: str, facts: str, **more: Any) -> Bunch:
    """The Bunch that `load` returns; `more` are further fields. `verified` is "checksum" unless it is among them."""
    more.setdefault("verified", "checksum")
    size = f"{data.shape[0]} rows, {data.shape[1]} features, targets: {', '.join(map(str, labels))}."
    return Bunch(
        data=data,
        target=target,
        feature_names=list(features),
        target_names=list(labels),
        source=source,
        DESCR=f"{name}: {size}\n{facts}\nSource: {source}. Verified: {more['verified']}.",
        **more,
    )


# ---- sources of files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Store:
    """The folder to search, the cache for OpenML (None means scikit-learn's own), and whether downloads are allowed."""

    folder: Path | None
    cache: str | None
    download: bool

    def find(self, file: str) -> Path | None:
        """The path of a file in the folder, or None if it is not there."""
        path = None if self.folder is None else self.folder / file
        return path if path is not None and path.is_file() else None

    def missing(self, name: str, files: str, why: str, remedy: str) -> DataNotFoundError:
        """The error for missing data. Its message has the needed files, the folder, the reason `why` and the remedy."""
        reason = "no folder is named" if self.folder is None else f"it is not in {self.folder}"
        return DataNotFoundError(
            f"data set {name!r} needs {files} in the folder named by data_home= or RANKRANGE_DATA, but {reason}{why}; "
            f"put it there{remedy}"
        )

    def openml(self, name: str, data_id: int, files: str) -> Bunch:
        """The OpenML copy as data frames, by scikit-learn's `fetch_openml`.

        A DataNotFoundError is raised if downloads are not allowed, if the download fails, or if pandas is not
        installed. Its message names the `files` that can be provided instead.
        """
        if not self.download:
            raise self.missing(name, files, "", ", or pass download=True to fetch it from OpenML")
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "A network error occurred")  # the error below reports it once
                return sklearn.datasets.fetch_openml(
                    data_id=data_id, data_home=self.cache, as_frame=True, parser="pandas", n_retries=1, delay=0.5
                )
        except ImportError as error:
            raise self.missing(
                name, files, " and reading OpenML needs pandas", ", or install pandas (pip install 'rankrange[data]')"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = f" and OpenML {data_id} could not be fetched ({type(error).__name__}: {error})"
            raise self.missing(name, files, why, ", or try again with a network") from error


def _unzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, "be a complete gzip file", str(error)) from error


def _damaged(path: Path, rule: str, got: str) -> ValueError:
    return ValueError(
        f"{path} must {rule}, got: {got}; the file is damaged or another one, replace it with a good copy"
    )


def _check_sha256(path: Path, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise _damaged(path, f"unpack to content with the sha256 {expected}", found)


# ---- tables: one CSV each, or OpenML ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """The expected properties of a table.

    `ones`: the number of rows of class 1, or with each label of a multi-label set; `sha256`: the hash of the unpacked
    CSV file; `row_sha256`: the hash of the sorted rows of data and target; `facts`: text for DESCR; `openml`: the
    number at OpenML.
    """

    rows: int
    features: int
    ones: tuple[int, ...]
    sha256: str
    facts: str
    row_sha256: str = ""
    openml: int = 0
    positive: str = "TRUE"  # the value for 1 at OpenML
    # names of the two classes; None for multi-label sets, whose header has the names
    labels: tuple[str, ...] | None = None

    def check(self, data: NDArray[Any], target: NDArray[Any], where: str) -> None:
        """Raise a ValueError unless rows, columns and class counts are as expected and all values are finite.

        `where` is the name of the source in the message.
        """
        ones = tuple(int(count) for count in np.reshape(target, (len(data), -1)).sum(axis=0))
        expected, found = (self.rows, self.features, self.ones), (*data.shape, ones)
        if found != expected:
            raise ValueError(
                f"{where} must have {expected[0]} rows, {expected[1]} features and {expected[2]} rows of each label, "
                f"got {found[0]}, {found[1]} and {found[2]}; the data are truncated or of another set, get a good copy"
            )
        if not np.isfinite(data).all():
            raise ValueError(
                f"{where} must have finite values, got {np.sum(~np.isfinite(data))} NaN or infinite; get a good copy"
            )


def load_table(name: str, store: Store) -> Bunch:
    """A table from its CSV file in the folder, otherwise from OpenML."""
    table, file = TABLES[name], f"{name}.csv.gz"
    path = store.find(file)
    if path is not None:
        return bunch(name, *read_table(path, table), f"file {path}", table.facts)
    frames = store.openml(name, table.openml, file)
    data, target = _convert(name, frames.data, frames.target)
    where = f"OpenML {table.openml} ({name})"
    table.check(data, target, where)
    same_rows = _sorted_rows_sha256(data, target) == table.row_sha256
    labels = frames.target.columns if table.labels is None else table.labels
    verified = "checksum" if same_rows else "shape and class counts"
    return bunch(name, data, target, frames.data.columns, labels, where, table.facts, verified=verified)


def read_table(path: Path, table: Table) -> tuple[NDArray[Any], NDArray[Any], list[str], Any]:
    """Data, target, feature names and label names of a CSV file with a header, after all checks."""
    content = _unzip(path)
    header, _, body = content.decode("utf-8", "replace").partition("\n")
    columns, d = header.strip().split(","), table.features
    is_label = [c.startswith("label:") if table.labels is None else c == "target" for c in columns]
    if is_label != [False] * d + [True] * len(table.ones):
        kind = "'label:...'" if table.labels is None else "'target'"
        rule = f"have {d} feature columns and then {len(table.ones)} named {kind}"
        raise _damaged(path, rule, f"{len(columns)} columns, {', '.join(columns[:3])} ... {columns[-1]}")
    if not body.strip():
        raise _damaged(path, f"hold {table.rows} rows", "no row below the header")
    try:
        values = np.loadtxt(io.StringIO(body), delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        raise _damaged(path, f"hold {table.rows} rows of {len(columns)} numbers", str(error)) from error
    data, target = np.ascontiguousarray(values[:, :d]), (values[:, d:] == 1).astype(np.int64)
    table.check(data, target, str(path))
    _check_sha256(path, content, table.sha256)
    if table.labels is not None:
        return data, target[:, 0], columns[:d], table.labels
    return data, target, columns[:d], [c.removeprefix("label:") for c in columns[d:]]


def _sorted_rows_sha256(data: NDArray[Any], target: NDArray[Any]) -> str:
    rows = np.column_stack([data, target]).astype("<f8") + 0.0  # no negative zeros
    return hashlib.sha256(rows[np.lexsort(rows.T[::-1])].tobytes()).hexdigest()


def _convert(name: str, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Convert data frames of OpenML to the arrays of the paper's copy: categories to its numbers, labels to 0 and 1.

    Rows of splice with ambiguous letters are left out, and the z-scores of phoneme are converted back.
    """
    target = (np.char.upper(y.to_numpy().astype(str)) == TABLES[name].positive).astype(np.int64)
    if name == "splice":
        letters = X.to_numpy().astype(str)
        certain = np.isin(letters, _BASES).all(axis=1)
        return _BASE_CODES[np.searchsorted(_BASES, letters[certain])], target[certain]
    try:
        data = np.column_stack([X[column].to_numpy().astype(str).astype(np.float64) for column in X.columns])
    except ValueError as error:
        raise ValueError(
            f"OpenML {TABLES[name].openml} ({name}) must hold numbers only, but {error}; use {name}.csv.gz in a folder"
        ) from error
    return (_undo_z_score(data) if name == "phoneme" else data), target


_BASES, _BASE_CODES = np.array(list("ACGT")), np.array([1.0, 3.0, 2.0, 4.0])  # LIBSVM's integers
_PHONEME_MEAN = (0.8189572538860103, 1.2588019985196133, 0.7647316802368606, 0.39874259807549883, 0.07861880088823105)
_PHONEME_STD = (0.858653605519687, 0.8509786074450377, 0.9253507590045482, 0.7964573251071655, 0.5755709556653436)


def _undo_z_score(data: NDArray[Any]) -> NDArray[Any]:
    """Convert OpenML's standardised phoneme values to those of the paper's copy, which has three decimals.

    A ValueError is raised if the columns are not standardised.
    """
    if np.abs(data.mean(axis=0)).max() > 0.01 or np.abs(data.std(axis=0) - 1.0).max() > 0.01:
        raise ValueError(
            "OpenML 1489 (phoneme) must have columns of mean 0 and deviation 1, got means "
            f"{data.mean(axis=0).round(3)} and deviations {data.std(axis=0).round(3)}; use phoneme.csv.gz in a folder"
        )
    return np.round(data * _PHONEME_STD + _PHONEME_MEAN, 3)


TABLES = {
    "australian": Table(
        rows=690,
        features=14,
        ones=(307,),
        sha256="aa27d75062169688759b06311ab6f26e1645b9948a8cea7839cab920c2f81297",
        row_sha256="55bdaa62fbb5da9c9b8807f3a6bb15ac07e11a1f36f5fe2144f24cba68ac6cb4",
        openml=40981,
        positive="1",
        labels=("-", "+"),
        facts="Credit approval with UCI's (Statlog) values. KEEL's copy, which the paper may have used, lost the "
        "decimal points of A2, A3 and A7.",
    ),
    "phoneme": Table(
        rows=5404,
        features=5,
        ones=(1586,),
        sha256="da41e76be235214a460fc512e41b3834894ff628cae54de434228376d7be6ee9",
        row_sha256="d9ac5abdcc1dfc5d4030977ee108efbef7cafa6b12f6af9981da9c81df193380",
        openml=1489,
        positive="2",
        labels=("nasal", "oral"),
        facts="Vowels by the amplitudes of five harmonics, KEEL's values with three decimals. OpenML has z-scores; "
        "they are converted back and rounded, and may differ in the last decimal.",
    ),
    "splice": Table(
        rows=3175,
        features=60,
        ones=(1648,),
        sha256="3ff34074cb3d7ad9d894429674c815553b3b9ac48f2ef028895c4b7a8aec62ac",
        row_sha256="17a423cb9c7177be151302e3fe42783a5972ae7e6074dedc59340fb4d990cf18",
        openml=46,
        positive="N",
        labels=("EI or IE", "neither"),
        facts="DNA positions as LIBSVM's integers A=1, G=2, C=3, T=4; in the folder's file the first 1,000 rows are "
        "its training part. OpenML has letters, 15 rows more with ambiguous ones (left out) and another row order.",
    ),
    "emotions": Table(
        rows=593,
        features=72,
        ones=(173, 166, 264, 148, 168, 189),
        sha256="0dfcb6f8e96077dc979ab2761c52248cd4cb84b7436ee315f6303f5a2fb988c8",
        row_sha256="26a9211fb95d043c7878c03c87d1c5e376c3fb02705ecdfe35eaf3f3c3051bf5",
        openml=40589,
        facts="Music by rhythm and timbre; six moods, 1.87 true ones per row.",
    ),
    "scene": Table(
        rows=2407,
        features=294,
        ones=(427, 364, 397, 433, 533, 431),
        sha256="c9d15cdcc7f59c4d66b562d0e421cbc1ca27b5e2e9b8049b980c6149590565b7",
        row_sha256="e34b1fe1a4927f08daab76fee8bc7eda441e50840e7bf130e7d6f76e7abbefa6",
        openml=40595,
        facts="Photographs by colour moments; six kinds of scene, 1.07 true ones per row. In the folder's file the "
        "first 1,211 rows are Mulan's training part.",
    ),
    "yeast": Table(
        rows=2417,
        features=103,
        ones=(762, 1038, 983, 862, 722, 597, 428, 480, 178, 253, 289, 1816, 1799, 34),
        sha256="50e2b264cf9e6c72aa6868fb2cc7e107b3faa456168eace638215b88034dddbf",
        row_sha256="44683b3c9c2da1021004ecc8630dab0fce975c4dab3b903986b94712724428c6",
        openml=40597,
        facts="Genes by expression and phylogenetic profile; 14 functional classes, 4.24 true ones per row.",
    ),
}


# ---- MNIST: four idx files, or OpenML --------------------------------------------------------------------------------

_MNIST = {
    "train-images-idx3": ((60000, 28, 28), "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1": ((60000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3": ((10000, 28, 28), "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1": ((10000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
_DIGITS = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)  # of all 70,000


def load_mnist(store: Store) -> Bunch:
    """MNIST from its four original files in the folder, otherwise from OpenML."""
    paths = [store.find(f"mnist/{file}-ubyte.gz") for file in _MNIST]
    verified = "checksum"
    if None not in paths:
        parts = [_read_idx(path, *_MNIST[file]) for path, file in zip(paths, _MNIST, strict=True) if path is not None]
        source = f"files in {store.folder}/mnist"
    else:
        frames = store.openml("mnist", 554, "mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz")
        parts, source = _split_mnist(frames), "OpenML 554 (mnist_784)"
        shas = (hashlib.sha256(_idx_header(part.shape) + part.tobytes()).hexdigest() for part in parts)
        if any(found != sha for found, (_, sha) in zip(shas, _MNIST.values(), strict=True)):
            verified = "shape and class counts"
    data, target, test_data, test_target = (part.reshape(len(part), -1) if part.ndim > 1 else part for part in parts)
    return bunch(
        "mnist",
        data,
        target.astype(np.int64),
        [f"pixel{i}" for i in range(784)],
        [str(digit) for digit in range(10)],
        source,
        "Handwritten digits, 28 x 28 pixels of 0..255 (uint8); 60,000 training and 10,000 test images.",
        test_data=test_data,
        test_target=test_target.astype(np.int64),
        verified=verified,
    )


def _idx_header(shape: tuple[int, ...]) -> bytes:
    """The header of an idx file: 0, 0, 8 (unsigned bytes), the number of dimensions, and the shape in big-endian."""
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)


def _read_idx(path: Path, shape: tuple[int, ...], sha256: str) -> NDArray[np.uint8]:
    content = _unzip(path)
    header, size = _idx_header(shape), math.prod(shape)
    if not content.startswith(header) or len(content) != len(header) + size:
        rule = f"be an idx file of {size} unsigned bytes, shape {shape}"
        raise _damaged(path, rule, f"{max(0, len(content) - len(header))} bytes after the header {content[:16]!r}")
    _check_sha256(path, content, sha256)
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape).copy()


def _split_mnist(frames: Bunch) -> list[NDArray[np.uint8]]:
    """Training images and labels, test images and labels: OpenML has the training rows first, in the original order.

    Another shape, or other class counts, are an error.
    """
    images, digits = frames.data.to_numpy(), frames.target.to_numpy().astype(str).astype(np.int64)
    counts = tuple(np.bincount(digits, minlength=10).tolist())
    if images.shape != (70000, 784) or counts != _DIGITS:
        raise ValueError(
            f"OpenML 554 (mnist) must have 70000 rows, 784 features and {_DIGITS} rows of each digit, got "
            f"{images.shape} and {counts}; use the four idx files in a folder"
        )
    images, digits = images.astype(np.uint8).reshape(-1, 28, 28), digits.astype(np.uint8)
    return [images[:60000], digits[:60000], images[60000:], digits[60000:]]
