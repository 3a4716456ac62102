"""Out-of-fold predictions: folds, paths of trimmed fits, and the choice of m, k and C.

`folds` draws folds, `path` fits increasing shares m on them, `held_out` scores them and chooses C. `choose` chooses m
without clean data, `with_clean` with a clean validation set (Algorithm 2), and `fpr_choice` the training range of
partial AUC. `models` fits any model on folds, and `alternate` fits the ranked range of any model by alternating between
ranking and fitting. `predictions` (linear models), `neighbours` and `trees` predict for the label-noise ensemble;
`members` is a table of them. `distant_rows` finds high-leverage rows, and `numeric` converts tables to numeric columns.
May import: `core`, `label_noise`, `metrics`, `outliers`, `solvers`.
"""
