"""The mathematics: what to keep (`ranges`), selection, losses, aggregates, the objective, the model of label flips.

May import: nothing of the package but `errors`; NumPy and SciPy only, never scikit-learn.
"""
