"""`LinearAoRRLoss`: the ranked-range loss of a language model, including its last layer, also with m="auto"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..core.ranges import Rank, RankedRange
from .distributed import gather_rows, share_of_items
from .losses import RangeLoss, warmup_batches
from .noisy_labels import History, checked_index
from .text_noise import WARMUP, DocumentGains, TokenNoise, gains_of
from .token_passes import Head, Kept, Tokens, document_means, kept_mean, mean_of_all, score_all
from .token_range import Ranking, TokenWeights, checked_names, mean_in_range, prepared

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class TextSuspect(NamedTuple):
    """A document that was dropped completely or in part."""

    document: int  # its index
    dropped: float  # the dropped share of its tokens (the mean of 1 - weight), a running mean over the visits
    loss: float  # its mean loss, a running mean over the visits
    visits: int
    text: str | None  # None unless `suspects` was called with tokens and tokenizer


class LinearAoRRLoss(RangeLoss):
    """Mean cross-entropy of the tokens or sequences ranked m+1 to k, from hidden states. See `linear_ranked_range`.

    Parameters
    ----------
    m, k : int, float or "auto", default=0.0 and 1.0
        How many tokens or sequences to drop, and the last rank to keep, as counts or fractions; both may be reassigned.
        `m="auto"` (with k=1.0) estimates which tokens or sequences are noise and down-weights them; see
        `rankrange.torch.text_noise`.
    key : {"excess", "loss", "reference"}, optional
        As in `linear_ranked_range`; with m="auto" leave it out.
    per : {"token", "sequence"}, default="token"
        The unit to rank, or with m="auto" the unit that may be noise: single tokens or whole documents.
    ignore_index, softcap, label_smoothing, chunk : int or float
        As in `linear_ranked_range`.
    group : torch.distributed process group, optional
        A group whose batches are ranked together, or with m="auto" estimate the noise together. Each process stores the
        running means of its own documents.
    warmup, total_batches : int or float, optional
        The number of first training batches that use all tokens, or with `total_batches` their fraction. The default
        is 100 for m="auto" with per="token", otherwise 0.
    n_documents : int, optional
        The size of the data set; required for m="auto" if the loss is called with `index`.

    Notes
    -----
    After a call `last_weights` has the weight of every token; `lam` and `lam_hat` are the cuts, if tokens were ranked.
    All state changes in training mode only and is part of the state_dict.

    Examples
    --------
    >>> import torch
    >>> hidden, weight, target = torch.eye(3), 2.0 * torch.eye(3), torch.tensor([0, 1, 0])
    >>> criterion = LinearAoRRLoss(m=1, k=3)
    >>> round(float(criterion(hidden, weight, target)), 4)
    0.2395
    >>> criterion.last_weights
    tensor([1., 1., 0.])
    """

    def __init__(
        self,
        m: Rank | str = 0.0,
        k: Rank = 1.0,
        *,
        key: str | None = None,
        per: str = "token",
        ignore_index: int = -100,
        softcap: float | None = None,
        label_smoothing: float = 0.0,
        chunk: int | None = None,
        group: ProcessGroup | None = None,
        warmup: int | float | None = None,
        total_batches: int | None = None,
        n_documents: int | None = None,
    ) -> None:
        super().__init__()
        checked_names(key, per)
        self.key, self.per, self.ignore_index, self.group = key, per, ignore_index, group
        self.softcap, self.label_smoothing, self.chunk = softcap, label_smoothing, chunk
        self.automatic = m == "auto"
        if warmup is None:
            warmup = WARMUP if self.automatic and per == "token" else 0
        self.warmup, self.batches = warmup_batches(warmup, total_batches), 0
        if self.automatic and key is not None:
            raise ValueError(f"m='auto' has no key, got key={key!r}; leave key out")
        self.noise = TokenNoise() if self.automatic and per == "token" else None
        self.gains = DocumentGains() if self.automatic and per == "sequence" else None
        remembers = self.automatic and n_documents is not None
        self.history = History(n_documents, "n_documents") if remembers else None
        self.set_range(m, k)
        self._last = {}

    @property
    def last_weights(self) -> Tensor:
        """The weight of each token of the last batch, in [0, 1]; 0 if dropped. It has the shape of the target."""
        weights: Tensor = self._last_call("weights")
        return weights

    @property
    def share(self) -> Tensor:
        """The estimated share of noise among the tokens or the documents (m="auto")."""
        if self.noise is not None:
            return self.noise.share()
        if self.gains is None:
            raise AttributeError(f"share needs m='auto', got m={self.m!r}; make the loss with m='auto'")
        return self.gains.share()

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        index: Tensor | None = None,
        reference: Tensor | None = None,
        token_weights: TokenWeights | None = None,
        n_items: Tensor | int | None = None,
    ) -> Tensor:
        """The loss of a batch; for other arguments see `linear_ranked_range`.

        `index` (sequences,) has the index of each sequence in the data set, under which its running means are stored
        (m="auto"). `n_items` is the number of tokens in all batches of a gradient accumulation, `num_items_in_batch` of
        transformers: the mean is multiplied by the share of them that is in this batch; with a group by the share of
        the batches of all processes, divided by the number of processes.
        """
        head = Head(weight, bias, self.softcap, self.label_smoothing, self.chunk)
        tokens = prepared(hidden, head, target, self.ignore_index, token_weights)
        if self.automatic and tokens.weigh is not None:
            raise ValueError("m='auto' takes token_weights as a tensor, got a function; use rrt.token_losses for it")
        warm = self.batches < self.warmup
        ranking = Ranking.checked(RankedRange() if warm else self._keep, self.key, self.per, reference, target)
        if self.automatic and reference is not None:
            raise ValueError("m='auto' has no reference, got one; leave it out, or give a number for m")
        if index is not None and self.automatic:
            if self.history is None:
                raise ValueError("index needs n_documents, got n_documents=None; pass n_documents=len(dataset)")
            index = checked_index(index, tokens.shape[0])
        if self.automatic:
            self.to(tokens.hidden.device)
        if self.warmup and self.training:
            self.batches += 1
        last: dict[str, Any] = {"counted": tokens.counted}
        if self.noise is not None:
            value, weights = self._by_token(self.noise, tokens, index, warm)
        elif self.gains is not None:
            value, weights = self._by_document(self.gains, tokens, index, warm)
        else:
            value, weights, cut = mean_in_range(tokens, ranking, self.group)
            if cut is not None:
                last["cut"] = cut
        last["weights"] = weights.reshape(target.shape)
        self._last = last
        return value if n_items is None else value * share_of_items(tokens.counted, n_items, self.group)

    def _by_token(self, noise: TokenNoise, tokens: Tokens, index: Tensor | None, warm: bool) -> tuple[Tensor, Tensor]:
        log_noise = noise.log_noise(len(tokens.head.weight))
        if warm:
            log_noise = torch.full_like(log_noise, -torch.inf)
        tokens = tokens._replace(weigh=lambda scores: torch.sigmoid(-scores.nll - log_noise))
        value, scores, weights = mean_of_all(tokens, self.group)
        if self.training:
            noise.update(scores, tokens.counted, self.group)
            dropped = document_means(torch.sigmoid(scores.nll + log_noise), tokens)
            self._remember(index, dropped, document_means(scores.nll, tokens))
        return value, weights

    def _by_document(
        self, noise: DocumentGains, tokens: Tokens, index: Tensor | None, warm: bool
    ) -> tuple[Tensor, Tensor]:
        scores = score_all(tokens)
        counted = tokens.counted.view(tokens.shape)
        with torch.no_grad():
            gains = gains_of(scores.nll.view_as(counted), tokens.target.view_as(counted), counted)
            means = self._mean_gains(gains, index)
            inside = noise.weights(means) if not warm else torch.ones_like(means)
            weights = inside.repeat_interleave(tokens.shape[1]).to(tokens.weights.dtype) * tokens.weights
            if self.training:
                rows, _ = gather_rows(torch.stack([gains, torch.ones_like(gains)], 1), self.group)
                noise.update(torch.where(rows[:, 1] > 0, rows[:, 0], torch.nan))
                self._remember(index, 1 - inside, document_means(scores.nll, tokens), gains)
        position = weights.nonzero()[:, 0]  # their number is on the device, so this synchronises
        kept = Kept(position, weights[position], weights.sum())
        return kept_mean(tokens, scores, kept, self.group), weights

    def _mean_gains(self, gains: Tensor, index: Tensor | None) -> Tensor:
        """The running means of the gains, including this visit; without indices the gains themselves."""
        if index is None or self.history is None:
            return gains
        seen = torch.stack([gains, gains, gains], 1).float()
        row, _ = self.history.locate(index, seen)
        return self.history.means(row, seen)[0][:, 2].to(gains.dtype)

    @torch.no_grad()
    def _remember(self, index: Tensor | None, *means: Tensor) -> None:
        """Store the dropped share, the mean loss and perhaps the gain of each document."""
        if index is None or self.history is None:
            return
        seen = torch.stack(means, 1).float().nan_to_num()
        row, _ = self.history.locate(index, seen)
        self.history.store(row, self.history.means(row, seen)[0], seen[:, 0] > 0.5)

    def suspects(
        self, n: int = 20, *, tokens: Callable[[int], Any] | Sequence[Any] | None = None, tokenizer: Any = None
    ) -> list[TextSuspect]:
        """Up to n documents of which a share was dropped, largest share first (m="auto", with `index`).

        `tokens` has, or returns, the tokens of a document by its index, and the `decode` of `tokenizer` converts them
        to text. The text is None unless both are given.
        """
        history = self.history
        if history is None or history.rows.numel() == 0:
            raise ValueError(
                "suspects() needs documents with an index, got none; use m='auto' with n_documents, and call "
                "criterion(..., index=index)"
            )
        rows, visits = history.rows[:-1].cpu(), history.visits[:-1].cpu()
        dropped = torch.where(visits > 0, rows[:, 0], 0.0)
        order = dropped.argsort(descending=True, stable=True)[:n]
        found = []
        for i in order[dropped[order] > 0].tolist():
            text = None
            if tokens is not None and tokenizer is not None:
                text = str(tokenizer.decode(tokens(i) if callable(tokens) else tokens[i]))
            found.append(TextSuspect(i, float(rows[i, 0]), float(rows[i, 1]), int(visits[i]), text))
        return found

    def extra_repr(self) -> str:
        return f"m={self.m!r}, k={self.k!r}, key={self.key!r}, per={self.per!r}, warmup={self.warmup}"
