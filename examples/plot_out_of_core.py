"""
What if my table does not fit into memory?
==========================================

Pass ``rankrange.scan(file)`` to ``fit``. It reads the file in blocks, in a few passes, and finds the exact cuts over
all rows and a certificate. Any engine that adds up results in the order of the rows can run the passes.
"""

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rankrange
from rankrange.shards import Scan

rng = np.random.default_rng(0)
n = 30_000 if os.environ.get("RANKRANGE_SMALL") else 200_000
X = rng.normal(size=(n, 6)).astype(np.float32)
y = (X @ np.array([1.5, -1.0, 0.5, 0.0, 0.0, 0.0]) + rng.logistic(scale=0.5, size=n) > 0).astype(np.float32)
bad = rng.random(n) < 0.1
X[bad] *= 8
y[bad] = 1 - y[bad]  # a tenth of the rows lie far out, with the wrong label

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "rows.npy"
np.save(path, np.column_stack([X, y]))

# %%
# One fit reads the file; the other hands its chunks to a pool of threads. The coefficients are equal to the last bit.


class InThreads(Scan):
    """A scan whose chunks are evaluated in two threads."""

    def each(self, kernel, message):
        with ThreadPoolExecutor(2) as pool:
            yield from pool.map(lambda chunk: kernel(chunk, message), self.chunks())

    def reduce(self, kernel, message):
        results = list(self.each(kernel, message))
        return sum(results[1:], start=results[0])


rows = rankrange.scan(path, target=6)
model = rankrange.AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(rows)
again = rankrange.AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(InThreads(path, target=6))
print(
    f"{model.n_passes_} passes, certificate {model.certificate_:.1e}; equal bits: {(model.coef_ == again.coef_).all()}"
)

# %%
# The dropped rows are computed by one more pass, on request.
dropped = np.zeros(n, dtype=bool)
dropped[model.dropped_.indices()] = True
print(f"{bad[dropped].mean():.1%} of the rows that were cut are bad ones")
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
some = rng.choice(n, 3000, replace=False)
left.scatter(
    X[some, 0], X[some, 1], s=4, c=np.where(y[some] > 0, "#e08a1e", "#3b74c4"), alpha=np.where(dropped[some], 0.25, 0.9)
)
(a, b), c = model.coef_[0, :2], float(np.ravel(model.intercept_)[0])
line = np.array([-20, 20])
left.plot(line, -(a * line + c) / b, color="0.1", lw=2)
left.set(xlim=(-18, 18), ylim=(-18, 18), xlabel="first column", ylabel="second column", title="Pale rows were dropped")
names = [f"x{i}" for i in range(6)]
right.bar(
    np.arange(6) - 0.2, model.coef_[0] / np.abs(model.coef_[0]).max(), 0.38, label="file, one reader", color="#d95f02"
)
right.bar(
    np.arange(6) + 0.2,
    again.coef_[0] / np.abs(again.coef_[0]).max(),
    0.38,
    label="two threads",
    color="#3b74c4",
)
right.plot(np.arange(6), np.array([1.5, -1, 0.5, 0, 0, 0]) / 1.5, "k_", ms=34, label="the rule behind the data")
right.set(xticks=range(6), xticklabels=names, title="Coefficients, relative to the largest")
right.legend(frameon=False)
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
folder.cleanup()
