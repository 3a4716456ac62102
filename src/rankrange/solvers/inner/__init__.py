"""Exact solvers of the convex problems inside the outer methods: the sum of the largest losses, and separated labels.

May import: `core`, and the modules of `solvers` that know no outer method (`result`, `descent`).
"""
