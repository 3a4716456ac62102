"""Sums whose last bit does not depend on who added what.

Floating-point addition is not associative. Here the order is fixed by the numbers of the blocks alone: blocks 2j and
2j + 1 are added, then the pairs, and so on, as in a tournament. A shard adds up the parts of that tree that lie inside
it and keeps the rest as a short list; lists of neighbours join without a difference to having added all in one place.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.arrays import Array


class TreeSum:
    """A sum over consecutive blocks: nodes (first block, level, value), a node of level l the sum of 2^l blocks."""

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, Array]] = []

    def add(self, block: int, value: Array) -> None:
        """The value of the next block."""
        self._push(block, 0, value)

    def extend(self, later: TreeSum) -> None:
        """The sum over the blocks that follow."""
        for node in later.nodes:
            self._push(*node)

    def _push(self, first: int, level: int, value: Array) -> None:
        nodes = self.nodes
        while (
            nodes and nodes[-1][1] == level and nodes[-1][0] == first - (1 << level) and not nodes[-1][0] >> level & 1
        ):
            first, _, left = nodes.pop()
            value, level = left + value, level + 1
        nodes.append((first, level, value))

    def copy(self) -> TreeSum:
        """A copy that can be added to."""
        same = TreeSum()
        same.nodes = list(self.nodes)
        return same

    def total(self) -> Array:
        """The sum over all blocks; what stands alone at the end is added from the last to the first."""
        values = [value for _, _, value in self.nodes]
        total = values[-1]
        for value in reversed(values[:-1]):
            total = value + total
        return total

    def __iter__(self) -> Iterator[Array]:
        return (value for _, _, value in self.nodes)

    def __bool__(self) -> bool:
        return bool(self.nodes)
