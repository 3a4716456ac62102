"""m="auto" for text: which tokens are noise, and which documents are no text, estimated while a language model trains.

**Tokens.** A text is a mixture: mostly of words that fit their context, sometimes of words drawn uniformly. The weight
of a token is its posterior probability of fitting,
    w = (1 - share) p(y) / ((1 - share) p(y) + share / words),
which makes the weighted loss an EM step for the likelihood of the mixture. The likelihood alone does not identify the
share: a model that has learned to expect noise explains it as well. The order of the words does. Let the rank of a
token be the share of the words that the model finds less likely. The rank of noise that the model has not seen before
is uniform on [0, 1]; that of text is near 1 once the model has learned which words there are. So the density of the
ranks near 0 is the share of noise, whether or not the model has learned to expect noise, and on clean text it is 0.
(Storey estimates the share of true null hypotheses in this way.) While the model does not yet separate text from noise,
nothing is taken for noise, and in the first batches (`WARMUP`) all tokens have weight 1, because rare words that an
untrained model does not know yet look like noise.

**Documents.** The gain of a document is the entropy of its own word frequencies minus its mean loss: how much the order
of its words helps the model. Words in random order have no positive gain, whatever the model has learned: nothing
predicts them better than their frequencies. Once most documents have a gain, and the median of theirs is two standard
deviations above 0, documents without one are left out.

**Answers to prompts** (key="reference"). The reference are the losses of the same answers without their prompts. An
answer is a mixture again: mostly of the words that follow the prompt, sometimes of words that have nothing to do with
it. Let the gain of an answer be the logarithm of its probability after the prompt minus that without. Its weight is the
posterior probability of belonging to the prompt,
    w = (1 - share) exp(gain) / ((1 - share) exp(gain) + share),
and the share of mismatched answers follows by EM: it is the mean of 1 - w over recent documents. If a model does not
use prompts, gains are about 0 and the share is not identifiable: all answers have weight 1 until most of them are a
hundred times as probable after their prompt as without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .token_scores import Scores

WARMUP = 100  # batches, unless the loss is given another number
DECAY = 0.95  # of all sums, per batch: some twenty batches count
# The density of the ranks near 0 is the smallest of that below each of these but the last, which is the lower half.
EDGES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)
MOST = 0.5  # no more than half of a text is taken for noise
UNSEPARATED = 0.1  # with more of the text than this in the lower half the model does not yet separate it from noise
RECENT = 1 << 10  # documents whose gains decide what is usual
PRIOR = 1.0, 10.0  # prior counts: mismatched answers, of so many answers
NEVER = 0.01  # an answer with a smaller probability is left out; 1 / NEVER is a gain that is certain
FAR = 2.0 / 0.6745  # distances from the median to the upper quartile: two standard deviations of a normal distribution


class TokenNoise(nn.Module):
    """The share of noise among the tokens, from decayed sums over the batches."""

    below: Tensor
    edges: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("below", torch.zeros(len(EDGES) + 1))  # tokens below each edge, and all
        self.register_buffer("edges", torch.tensor(EDGES), persistent=False)  # on the device: to copy them would wait

    def share(self) -> Tensor:
        """The density of the ranks near 0; 0 while the model does not separate text from noise."""
        below = self.below[:-1] / self.below[-1].clamp(min=1.0)
        share = (below / self.edges)[:-1].min().clamp(max=MOST)
        text_in_lower_half = (below[-1] - share / 2) / (1 - share)
        return torch.where((text_in_lower_half < UNSEPARATED) & (self.below[-1] > 0), share, 0.0)

    def log_noise(self, n_words: int) -> Tensor:
        """The logarithm of how often any one word is read as noise for once that it is read as text."""
        share = self.share()
        return share.log() - torch.log1p(-share) - torch.full_like(share, n_words).log()

    def update(
        self, scores: Scores, counted: Tensor, n_words: int, summed: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Let the sums move on by a batch; `summed` adds up a tensor over the processes of a group."""
        ones = (counted & ~scores.nll.isnan()).float()
        # A word takes an interval of ranks, over which a token is spread out: ranks of noise are then exactly uniform.
        reached = ((self.edges[:, None] - scores.rank.float()) * n_words).clamp(0, 1)
        new = torch.cat([(reached * ones).sum(1), ones.sum()[None]])
        self.below.mul_(DECAY).add_(new if summed is None else summed(new))


class DocumentGains(nn.Module):
    """The gains of recent documents, and how low the gain of a document may be."""

    recent: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("recent", torch.full((RECENT,), torch.nan))

    def limit(self) -> Tensor:
        """0 if most documents have a gain and these lie well above 0, otherwise minus infinity.

        Documents below are left out. The typical gain is that of documents with a positive gain, so that the others,
        however many there are, do not delay the time when they are recognised.
        """
        falling = self.recent.nan_to_num(nan=-torch.inf).sort(descending=True).values
        n_gains = (falling > 0).sum()
        upper, middle = (falling[(n_gains * share).long().clamp(max=RECENT - 1)] for share in (0.25, 0.5))
        usual = (middle - FAR * (upper - middle) > 0) & (2 * n_gains > (~self.recent.isnan()).sum())
        return torch.where(usual, 0.0, -torch.inf)

    def share(self) -> Tensor:
        """The share of recent documents below the limit."""
        known = ~self.recent.isnan()
        return ((self.recent < self.limit()) & known).sum() / known.sum().clamp(min=1)

    def weights(self, gains: Tensor) -> Tensor:
        """1 for a document that is kept, otherwise 0."""
        return (~(gains < self.limit())).to(gains.dtype)

    def update(self, gains: Tensor) -> None:
        """Add the gains of a batch, NaN for a document that has none."""
        self.recent.copy_(torch.cat([self.recent, gains.to(self.recent.dtype)])[-RECENT:])


class AnswerNoise(nn.Module):
    """The share of answers that do not match their prompts, from decayed sums over the batches."""

    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(3))  # answers that do not match, that match for certain, and all

    def share(self) -> Tensor:
        """The mean posterior probability of a mismatch; 0 while prompts hardly predict their answers."""
        noise, certain, known = self.sums.unbind()
        return torch.where(2 * certain > known, (noise + PRIOR[0]) / (known + PRIOR[1]), 0.0)

    def weights(self, gains: Tensor) -> Tensor:
        """The posterior probability that an answer of this gain matches its prompt; 0 if it is very small."""
        share = self.share().to(gains.dtype)
        weights = torch.sigmoid(gains.nan_to_num() + torch.log1p(-share) - share.log())
        return torch.where(weights < NEVER, 0.0, weights)

    def update(self, gains: Tensor) -> None:
        """Let the sums move on by the gains of a batch, NaN for a document that has none."""
        known = ~gains.isnan()
        noise = torch.where(known, 1 - self.weights(gains), 0.0)
        certain = (gains > -math.log(NEVER)).to(noise.dtype)
        self.sums.mul_(DECAY).add_(torch.stack([noise, certain, known.to(noise.dtype)]).sum(1))


def gains_over(reference: Tensor, losses: Tensor, counted: Tensor) -> Tensor:
    """(documents,) the sum of what the losses lie below those of the reference; NaN for a row without tokens."""
    gains = torch.where(counted, reference - losses, 0.0).sum(1)
    return torch.where(counted.any(1), gains, torch.nan)


def gains_of(losses: Tensor, target: Tensor, counted: Tensor) -> Tensor:
    """(documents,) the entropy of each row's word frequencies minus its mean loss; NaN for a row without tokens."""
    n = counted.sum(1).clamp(min=1)
    words = torch.where(counted, target, -1).sort(1).values.contiguous()
    repeats = torch.searchsorted(words, words, right=True) - torch.searchsorted(words, words)
    entropy = n.log() - torch.where(words >= 0, repeats.log(), 0.0).sum(1) / n
    gains = entropy - torch.where(counted, losses, 0.0).sum(1) / n
    return torch.where(counted.any(1), gains, torch.nan)
