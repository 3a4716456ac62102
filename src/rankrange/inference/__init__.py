"""Inference after a robust fit: scale, reweighting, MM-estimation, standard errors, diagnostics and the summary table.

All functions take arrays. The estimators call them and store the results. May import: `core` and `solvers`.
"""
