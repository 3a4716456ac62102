"""The order in which the gallery shows its examples."""

from __future__ import annotations

QUESTIONS = [
    "plot_four_aggregates.py",
    "plot_wrong_digits.py",
    "plot_audit_table.py",
    "plot_several_reviewers.py",
    "plot_choose_m.py",
    "plot_class_dependent_noise.py",
    "plot_robust_regression.py",
    "plot_regression_inference.py",
    "plot_sparse_genes.py",
    "plot_text_and_categories.py",
    "plot_any_model.py",
    "plot_compare_cleanlab.py",
    "plot_partial_auc.py",
    "plot_worst_group.py",
    "plot_rank_weights.py",
    "plot_multilabel_top_k.py",
    "plot_certificate.py",
    "plot_network_noisy_labels.py",
    "plot_noisy_tokens.py",
    "plot_adversarial_training.py",
    "plot_survival.py",
    "plot_several_processes.py",
    "plot_out_of_core.py",
    "plot_cvar.py",
]


class InReadingOrder:
    """The order of the gallery: what most people ask comes first."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        """The place of a file; without one the site is not built."""
        return QUESTIONS.index(name)

    def __repr__(self) -> str:
        """Without an address, so that an unchanged example is not run again."""
        return "<InReadingOrder>"
