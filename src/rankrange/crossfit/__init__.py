"""Fits that have not seen the rows they judge: folds, many trimmed fits at once, and the choice of m, k and C.

`choose` works without clean rows, `with_clean` with some (Algorithm 2), `grid` is scikit-learn's grid search.
May import: `core`, `solvers`.
"""
