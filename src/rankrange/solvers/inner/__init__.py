"""Exact solvers of the inner convex problems: sums of the largest losses, and separated labels.

May import: `core`, and the modules of `solvers` that do not use an outer method (`descent`).
"""
