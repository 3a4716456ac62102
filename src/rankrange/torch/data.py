"""Data sets that return the index of each sample."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset


class WithIndex(Dataset[Any]):
    """Wrap a data set so that each sample includes its index, for `AoRRLoss(m="auto")`: (x, y) becomes (x, y, index).

    Parameters
    ----------
    dataset : map-style data set
        The data set. A sample that is a tuple or list becomes a tuple with the index at its end, a dictionary gets the
        key "index", and any other sample becomes (sample, index).

    Examples
    --------
    >>> WithIndex([("a", 0), ("b", 1)])[1]
    ('b', 1, 1)
    >>> WithIndex([{"x": "a"}])[0]
    {'x': 'a', 'index': 0}
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self.dataset[index]
        if isinstance(sample, dict):
            return {**sample, "index": index}
        return (*sample, index) if isinstance(sample, (tuple, list)) else (sample, index)
