"""What follows a robust fit: scale, reweighting, MM-estimation, standard errors, kinds of rows, and the summary table.

Functions of arrays; the estimators call them and store what comes out. May import: `core` and `solvers`.
"""
