"""
Can I trust a slope if some rows may be wrong?
==============================================

A fifth of the rows are bad leverage points: far out, and off the line. Least squares follows them and still reports a
small standard error. The interval of the MM-estimate contains the true slope, and the diagnostics name the rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from rankrange.plots import plot_diagnostics
from rankrange.regression import mm

rng = np.random.default_rng(0)
x = rng.normal(size=100)
y = 1 + 2 * x + rng.normal(size=100)
x[:20] += 8  # the first twenty rows are recorded with a wrong x

# %%
# The true slope is 2. Least squares is far off; the interval of the robust fit contains it.
model = mm(x[:, None], y, random_state=0)
line = LinearRegression().fit(x[:, None], y)
print(f"least squares: {line.coef_[0]:.2f}")
print(model.summary())

# %%
# Each row is regular, a vertical outlier, or a good or bad leverage point.
found = model.diagnostics()
print(found.counts)
plot_diagnostics(model)

# %%
# Both lines.
ends = np.array([[x.min()], [x.max()]])
plt.figure()
plt.plot(x, y, ".", color="#2457a6")
plt.plot(ends, line.predict(ends), "--", color="#b4400b", label="least squares")
plt.plot(ends, model.predict(ends), color="#2457a6", label="MM-estimate")
plt.legend(frameon=False)
plt.show()
