"""One file for each experiment of the paper: what is run, what it is compared with, which claims are tested.

May import: the public API of the package and `paper.harness`.
"""
