"""One module for each experiment of the paper: its work, its tables and figures, and the claims that are tested.

May import: the public API of the package and `paper.harness`.
"""
