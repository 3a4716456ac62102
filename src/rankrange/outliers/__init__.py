"""The model of wrong numeric targets. It turns out-of-fold residuals into posterior probabilities.

`scatter` estimates the robust scale of residuals, overall or locally. `model` computes the posterior. May import:
`core`; NumPy, SciPy and scikit-learn's isotonic regression only.
"""

from .model import OUTLYING as OUTLYING
from .model import OutlierPosterior as OutlierPosterior
from .model import outlier_posterior as outlier_posterior
from .model import outlier_share as outlier_share
from .scatter import robust_scale as robust_scale
from .scatter import sizes as sizes
