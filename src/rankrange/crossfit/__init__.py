"""Out-of-fold predictions: folds, many trimmed fits at once, and the choice of m, k and C.

`folds` draws folds and computes the penalty and the out-of-fold scores of linear models (`CrossFit`), with the batched
fits of `fits`. `choose` chooses m without clean data, `with_clean` with a clean validation set (Algorithm 2), and
`grid` by grid search. `models` fits any model on folds; `predictions`, `trees` and `simple_models` are other members of
the ensemble. `label_share` estimates the share of wrong labels. `alternate` fits the ranked range of any model by
alternating between ranking and fitting. May import: `core`, `label_noise`, `solvers`.
"""
