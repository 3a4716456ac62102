"""Which numeric targets are wrong? One model for every entry point: out-of-fold residuals in, a posterior out.

`scatter` has the robust scale of residuals, over all rows or locally, and `model` the posterior.
May import: `core`; NumPy, SciPy and scikit-learn's isotonic regression only.
"""

from .model import OutlierPosterior as OutlierPosterior
from .model import outlier_posterior as outlier_posterior
from .scatter import Widths as Widths
from .scatter import robust_scale as robust_scale
from .scatter import sizes as sizes
