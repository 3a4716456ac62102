"""One module for each experiment of the paper: the work, the printed numbers and the tested claims.

May import: the public API of the package and `paper.harness`.
"""
