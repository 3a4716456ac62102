"""The experiments of "Sum of Ranked Range Loss for Supervised Learning" (JMLR 23, 2022), outside of the package."""
