"""Exact solvers of the inner convex problems: sums of the largest losses, also of multi-label losses with fixed pairs.

May import: `core` and `solvers.descent`.
"""
