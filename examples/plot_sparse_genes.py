"""
Which genes matter, if some samples are mixed up?
=================================================

A table like those of gene expression: 100 samples, 1,000 genes in correlated groups, and a response that five genes
drive. A tenth of the samples were mixed up, so their response belongs to another sample. The lasso follows them and
lists the wrong genes. ``AoRRRegressor`` with ``l1_ratio=1.0`` chooses the penalty and the share of samples to drop.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LassoCV

from rankrange import AoRRRegressor
from rankrange.plots import plot_path

small = bool(os.environ.get("RANKRANGE_SMALL"))
n, p = (100, 200) if small else (100, 1000)
rng = np.random.default_rng(0)

# %%
# Expression in groups of ten genes that share a factor.
factors = rng.normal(size=(n, p // 10))
X = 0.6 * np.repeat(factors, 10, axis=1) + 0.8 * rng.normal(size=(n, p))
genes = np.array([5, 25, 45, 65, 85])
y = X[:, genes] @ np.array([2.0, -2.0, 1.5, 1.5, -1.5]) + 0.5 * rng.normal(size=n)
mixed_up = rng.choice(n, n // 10, replace=False)
y[mixed_up] = rng.normal(15, 3, size=len(mixed_up))

# %%
# Both choose their penalty by cross-validation.
lasso = LassoCV(cv=5, max_iter=5000).fit(X, y)
robust = AoRRRegressor(C="auto", l1_ratio=1.0, random_state=0).fit(X, y)
print(f"m = {robust.m_}, of the mixed-up samples {robust.dropped_[mixed_up].sum()} of {len(mixed_up)} were dropped")
for name, coef in (("lasso", lasso.coef_), ("AoRRRegressor", robust.coef_)):
    print(f"{name}: {np.isin(genes, np.flatnonzero(coef)).sum()} of 5 genes among {np.count_nonzero(coef)}")

# %%
# The results are the samples to check in the laboratory, and the genes of the model that ignores them, the largest
# coefficient first. The penalty shrinks coefficients towards zero.
print("samples to check:", np.flatnonzero(robust.dropped_).tolist())
for gene in np.argsort(-np.abs(robust.coef_))[: np.count_nonzero(robust.coef_)][:8]:
    print(f"gene {gene}: {robust.coef_[gene]:+.2f}" + (" (true)" if gene in genes else ""))

# %%
# Coefficients of the genes, and the path of penalties.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
left.plot(lasso.coef_, "x", label="lasso", color="#c44e52")
left.plot(robust.coef_, ".", label="AoRRRegressor", color="#4c72b0")
for gene in genes:
    left.axvline(gene, color="0.8", lw=1, zorder=0)
left.set(xlabel="gene", ylabel="coefficient", xlim=(-5, 150))
left.legend(frameon=False)
plot_path(robust, ax=right)
plt.show()
