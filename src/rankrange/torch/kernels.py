"""Triton kernels for the ranked range and TKML. Not written yet: eager PyTorch does everything."""

from __future__ import annotations

from torch import Tensor


def fits_ranked_range(rows: Tensor) -> bool:
    return False


def fits_tkml(scores: Tensor, target: Tensor, top_k: int) -> bool:
    return False


def ranked_range(rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor]:
    raise NotImplementedError


def tkml(scores: Tensor, target: Tensor, top_k: int, two_sided: bool) -> Tensor:
    raise NotImplementedError
