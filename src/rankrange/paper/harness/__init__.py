"""How experiments are run, stored and shown beside the paper's printed numbers.

May import: the public API of the package, `errors`, `pages` and `tables.write`.
"""
