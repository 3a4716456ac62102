"""Running and storing experiments, and pages that compare results with the paper's printed numbers.

May import: the public API of the package, `errors`, `pages` and `tables.write`.
"""
