"""Fits of rows on a GPU, or of PyTorch tensors on a CPU: the exact fit of `shards`, with passes on the device.

May import: `core`, `crossfit`, `shards` and PyTorch. It is imported only when an estimator gets such rows.
"""
