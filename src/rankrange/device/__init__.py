"""Rows on a GPU, or as PyTorch tensors on a CPU: the same exact fit as on shards, each pass a kernel on the device.

May import: everything below it, and PyTorch. It is loaded when an estimator meets such rows, never before.
"""
