"""m="auto" for language models: estimates which tokens, documents or answers are noise during training.

**Tokens.** A text is a mixture: mostly of words that fit their context, sometimes of words drawn uniformly. The weight
of a token is its posterior probability of fitting,
    w = (1 - share) p(y) / ((1 - share) p(y) + share / words),
which makes the weighted loss an EM step. The likelihood does not identify the share, because a model may learn to
expect noise, but ranks do. Let the rank of a token be the share of the words that the model finds less likely. That of
a noise token that is not memorised is uniform on [0, 1], and that of text is near 1. So the density of the ranks near 0
is the share of noise, as in Storey's estimate of the share of true null hypotheses. Until the model separates text from
noise, the share is 0; in the first batches (`WARMUP`) all tokens have weight 1.

**Documents.** The gain of a document is the entropy of its own word frequencies minus its mean loss: how much the order
of its words helps the model. Words in random order have none. Once most documents have a positive gain, and the median
of these gains is two standard deviations above 0, documents with a negative gain are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .distributed import sum_over
from .token_passes import Scores

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

WARMUP = 100  # the default number of batches
DECAY = 0.95  # the decay of all sums per batch: about twenty batches count
# The density of the ranks near 0 is the minimum over the densities below these edges; the last edge is the lower half.
EDGES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
MAX_SHARE = 0.5  # the largest share of noise
# if a larger share of the ranks is in the lower half, the model does not yet separate text from noise
UNSEPARATED = 0.1
RECENT = 1 << 10  # the number of recent documents
# two standard deviations of a normal distribution, in units of the distance from its median to its upper quartile
FAR = 2.0 / 0.6745


class TokenNoise(nn.Module):
    """The share of noise among the tokens, from decayed sums over the batches."""

    below: Tensor
    edges: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("below", torch.zeros(len(EDGES) + 1))  # tokens below each edge, and all
        self.register_buffer("edges", torch.tensor(EDGES), persistent=False)  # on the device: a copy would synchronise

    def share(self) -> Tensor:
        """The density of the ranks near 0, at most MAX_SHARE; 0 while the model does not separate text from noise."""
        below = self.below[:-1] / self.below[-1].clamp(min=1.0)
        share = (below / self.edges)[:-1].min().clamp(max=MAX_SHARE)
        text_in_lower_half = (below[-1] - share / 2) / (1 - share)
        return torch.where((text_in_lower_half < UNSEPARATED) & (self.below[-1] > 0), share, 0.0)

    def log_noise(self, n_words: int) -> Tensor:
        """The log odds of noise for a single word: log(share / (1 - share) / n_words), -inf if the share is 0."""
        share = self.share()
        return share.log() - torch.log1p(-share) - torch.full_like(share, n_words).log()

    def update(self, scores: Scores, counted: Tensor, group: ProcessGroup | None = None) -> None:
        ones = (counted & ~scores.nll.isnan()).float()
        below = (scores.rank < self.edges[:, None]) * ones
        new = torch.cat([below.sum(1), ones.sum()[None]])
        self.below.mul_(DECAY).add_(sum_over(new, group))


class DocumentGains(nn.Module):
    """The gains of recent documents, and the least gain of a kept document."""

    recent: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("recent", torch.full((RECENT,), torch.nan))

    def limit(self) -> Tensor:
        """0 if most documents have a positive gain and these gains are well above 0, otherwise minus infinity."""
        falling = self.recent.nan_to_num(nan=-torch.inf).sort(descending=True).values
        n_gains = (falling > 0).sum()
        upper, middle = (falling[(n_gains * share).long().clamp(max=RECENT - 1)] for share in (0.25, 0.5))
        usual = (middle - FAR * (upper - middle) > 0) & (2 * n_gains > (~self.recent.isnan()).sum())
        return torch.where(usual, 0.0, -torch.inf)

    def share(self) -> Tensor:
        """The share of recent documents below the limit."""
        present = ~self.recent.isnan()
        return ((self.recent < self.limit()) & present).sum() / present.sum().clamp(min=1)

    def weights(self, gains: Tensor) -> Tensor:
        """1 for a document that is kept, otherwise 0; a document without a gain (NaN) is kept."""
        return (~(gains < self.limit())).to(gains.dtype)

    def update(self, gains: Tensor) -> None:
        self.recent.copy_(torch.cat([self.recent, gains.to(self.recent.dtype)])[-RECENT:])


def gains_of(losses: Tensor, target: Tensor, counted: Tensor) -> Tensor:
    """Tensor (documents,): the entropy of a row's word frequencies minus its mean loss; NaN without tokens."""
    n = counted.sum(1).clamp(min=1)
    words = torch.where(counted, target, -1).sort(1).values.contiguous()
    repeats = torch.searchsorted(words, words, right=True) - torch.searchsorted(words, words)
    entropy = n.log() - torch.where(words >= 0, repeats.log(), 0.0).sum(1) / n
    gains = entropy - torch.where(counted, losses, 0.0).sum(1) / n
    return torch.where(counted.any(1), gains, torch.nan)
