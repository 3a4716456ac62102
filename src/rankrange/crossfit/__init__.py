"""Out-of-fold predictions: folds, many trimmed fits at once, and the choice of m, k and C.

`folds` deals out the rows and makes penalty and scores of one data set once (`CrossFit`), on the fits of `fits`.
`choose` works without clean rows, `with_clean` with some (Algorithm 2), `grid` is scikit-learn's grid search. `models`
fits any model on `folds`, `predictions`, `trees` and `simple_models` are the members beside it, `label_share` and
`residuals` estimate how many labels and which numbers are wrong, and `alternate` is the ranked range by ranking and
fitting in turn. May import: `core`, `label_noise`, `solvers`.
"""
