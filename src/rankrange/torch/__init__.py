"""The ranked range for PyTorch: means of the losses ranked m+1 to k, on any device, also across processes.

`ranked_range` and `AoRRLoss` rank the losses of samples, `tkml` and `TKMLLoss` the labels of one sample; one inside the
other is TKML-AoRR. `PartialAUCLoss` compares positives with the negatives between two false positive rates.
`linear_ranked_range` and `LinearAoRRLoss` rank the tokens or sequences of a language model and include its last layer.
`rank_weighted_mean` and `WorstGroupLoss` are other aggregates of losses. Eager PyTorch defines the results; on a GPU
with Triton fused kernels compute them.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "rankrange.torch needs PyTorch, which is not installed; install it with: pip install torch "
        "(or follow https://pytorch.org for a build with CUDA)"
    ) from error

from .data import WithIndex
from .functional import rank_weighted_mean, ranked_range, tkml
from .losses import AoRRLoss, TKMLLoss, WorstGroupLoss
from .pair_loss import PartialAUCLoss
from .schedules import AccuracySchedule, LinearSchedule
from .token_module import LinearAoRRLoss
from .token_range import linear_ranked_range, token_losses

__all__ = [
    "AccuracySchedule",
    "AoRRLoss",
    "LinearAoRRLoss",
    "LinearSchedule",
    "PartialAUCLoss",
    "TKMLLoss",
    "WithIndex",
    "WorstGroupLoss",
    "linear_ranked_range",
    "rank_weighted_mean",
    "ranked_range",
    "tkml",
    "token_losses",
]
