"""`LinearAoRRLoss`: the ranked-range loss of a language model, including its last layer, also with m="auto"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..core.ranges import Rank, RankedRange
from .memory import Memory
from .modules import RangeLoss, _batches
from .text_noise import WARMUP, AnswerNoise, DocumentGains, TokenNoise, gains_of, gains_over
from .token_passes import Kept, Tokens, kept_mean, mean_of_all, score_all
from .token_range import checked_key, checked_names, keeps_all, prepared, ranked
from .token_scores import Head, Scores

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_FACTOR = 0.5  # weight of the past in the running mean of a document


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
        How many tokens or sequences to drop, and the last rank to keep, as counts or fractions; both numbers may be
        reassigned during training. `m="auto"` (with k=1.0) estimates which tokens or sequences are noise and
        down-weights them; see `rankrange.torch.text_noise`.
    key : {"excess", "loss", "reference"}, optional
        The value to rank by; see `linear_ranked_range`. With m="auto" leave it out, or use "reference" with
        per="sequence": `reference` is then the loss of the same answers without their prompts, and answers that do not
        match their prompts are down-weighted.
    per : {"token", "sequence"}, default="token"
        The unit to rank, or with m="auto" the unit that may be noise: single tokens or whole documents.
    ignore_index : int, default=-100
        Tokens with this target are neither ranked nor counted.
    softcap : float, optional
        Logits become softcap * tanh(logits / softcap).
    label_smoothing : float, default=0.0
        Label smoothing, as in `torch.nn.CrossEntropyLoss`.
    group : torch.distributed process group, optional
        A group whose batches are ranked together, or with m="auto" estimate the noise together. Each process stores the
        running means of its own documents.
    warmup : int or float, optional
        The number of first training batches that use all tokens; a float is a fraction of `total_batches`. The default
        is 100 for m="auto" with per="token", otherwise 0.
    total_batches : int, optional
        The number of training batches; required if `warmup` is a fraction.
    n_documents : int, optional
        The size of the data set, for m="auto" with `index`. Without it the stored table grows with the indices.

    Notes
    -----
    After a call `last_weights` has the weight of every token; `lam` and `lam_hat` are the cuts (not for m="auto", not
    during the warm-up, and not for m=0 with k=1.0). The estimates, running means and the count of warm-up batches
    change in training mode only. They are part of the state_dict, as are m and k.

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
        group: ProcessGroup | None = None,
        warmup: int | float | None = None,
        total_batches: int | None = None,
        n_documents: int | None = None,
    ) -> None:
        super().__init__()
        checked_names(key, per)
        self.key, self.per, self.ignore_index, self.group = key, per, ignore_index, group
        self.softcap, self.label_smoothing = softcap, label_smoothing
        self.automatic = m == "auto"
        if warmup is None:
            warmup = WARMUP if self.automatic and per == "token" else 0
        self.warmup, self.batches = _batches(warmup, total_batches), 0
        if self.automatic and (key, per) not in ((None, "token"), (None, "sequence"), ("reference", "sequence")):
            raise ValueError(
                f"with m='auto' the key must be None, or 'reference' with per='sequence', got key={key!r} with "
                f"per={per!r}; leave key out"
            )
        self.noise = TokenNoise() if self.automatic and per == "token" else None
        self.gains: DocumentGains | AnswerNoise | None = None
        if self.automatic and per == "sequence":
            self.gains = DocumentGains() if key is None else AnswerNoise()
        self.memory = Memory(n_documents, _FACTOR, "n_documents") if self.automatic else None
        self._keep = self._checked(m, k)
        self._last: dict[str, Any] = {}

    def _checked(self, m: Rank | str, k: Rank) -> RankedRange:
        if isinstance(m, str):
            if m != "auto" or not self.automatic or k != 1.0 or not isinstance(k, float):
                raise ValueError(
                    f"m must be a count or a fraction, or 'auto' in the constructor with k=1.0, got {m=}, {k=}"
                )
            return RankedRange(0.0, k)
        if self.automatic:
            raise ValueError(f"this loss was made with m='auto', got m={m!r}; make another one for a given m")
        return RankedRange(m, k)

    @property
    def last_weights(self) -> Tensor:
        """The weight of each token of the last batch, in [0, 1]; 0 if dropped. It has the shape of the target."""
        tokens: Tokens = self._last_call("tokens")
        weights: Tensor = self._last_call("weights")
        return weights.reshape(tokens.shape)

    @property
    def lam(self) -> Tensor:
        """The lower cut of the last batch: the smallest key that was kept."""
        return self._last_call("cut")[0]

    @property
    def lam_hat(self) -> Tensor:
        """The upper cut of the last batch: the smallest of the m largest keys; infinite if m = 0."""
        return self._last_call("cut")[1]

    @property
    def share(self) -> Tensor:
        """The estimated share of noise among the tokens or the documents (m="auto")."""
        if self.noise is not None:
            return self.noise.share()
        if self.gains is None:
            raise AttributeError(f"share needs m='auto', got m={self.m!r}; make the loss with m='auto'")
        return self.gains.share()

    def _last_call(self, what: str) -> Any:
        if what not in self._last:
            raise AttributeError(f"{what} of the last batch: call the loss first (cuts exist for a given m only)")
        return self._last[what]

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        index: Tensor | None = None,
        reference: Tensor | None = None,
        n_items: Tensor | int | None = None,
    ) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        hidden, weight, target, bias, reference
            As in `linear_ranked_range`.
        index : Tensor of shape (sequences,), optional
            The index of each sequence in the data set, under which its running means are stored (m="auto").
        n_items : int or Tensor, optional
            The number of tokens in all batches of a gradient accumulation. The mean is then multiplied by the share of
            these tokens that are in this batch. With a group it is multiplied by the share in the batches of all
            processes, divided by the number of processes. The trainer of transformers passes it as
            `num_items_in_batch`.
        """
        tokens, head = prepared(hidden, weight, target, bias, self.ignore_index, self.softcap, self.label_smoothing)
        key = checked_key(self.key, self.per, reference, target)
        if self.automatic and key == "reference" and self.key is None:
            raise ValueError("m='auto' compares to a reference with key='reference' and per='sequence'; pass both")
        warm = self.batches < self.warmup
        if self.warmup and self.training:
            self.batches += 1
        # Only the mask and the shape are kept: a slice of the hidden states would keep the batch and its graph alive.
        nothing = tokens.hidden.new_empty(0, tokens.hidden.shape[1]), tokens.target.new_empty(0)
        self._last = {"tokens": Tokens(*nothing, tokens.counted, tokens.shape)}
        if self.noise is not None:
            value = self._by_token(tokens, head, index, warm)
        elif self.gains is not None:
            value = self._by_document(tokens, head, index, reference, warm)
        elif warm or keeps_all(self._keep):
            value, _, self._last["weights"] = mean_of_all(tokens, head, self.group)
        else:
            value, kept, _ = ranked(tokens, head, self._keep, key, self.per, reference, self.group)
            self._note(kept)
        return value if n_items is None else value * self._portion(tokens.counted, n_items)

    def _note(self, kept: Kept) -> None:
        weights = torch.zeros_like(self._last["tokens"].counted, dtype=kept.weight.dtype)
        self._last["weights"] = weights.scatter(0, kept.position, kept.weight)
        self._last["cut"] = kept.lam, kept.lam_hat

    def _portion(self, counted: Tensor, n_items: Tensor | int) -> Tensor:
        n_counted = counted.sum().float()
        if self.group is None:
            return n_counted / n_items
        from .distributed import sum_over

        # The trainer multiplies the loss of a process by the number of processes.
        return sum_over(n_counted, self.group) / n_items / torch.distributed.get_world_size(self.group)

    def _by_token(self, tokens: Tokens, head: Head, index: Tensor | None, warm: bool) -> Tensor:
        noise = self.noise
        assert noise is not None
        if noise.below.device != tokens.hidden.device:
            noise.to(tokens.hidden.device)
        log_noise = noise.log_noise(len(head.weight))
        if warm:
            log_noise = torch.full_like(log_noise, -torch.inf)
        value, scores, weights = mean_of_all(tokens, head, self.group, log_noise)
        self._last["weights"] = weights
        if self.training:
            noise.update(scores, tokens.counted, len(head.weight), self._summed())
            self._remember(tokens, scores, 1 - weights, index)
        return value

    def _by_document(
        self, tokens: Tokens, head: Head, index: Tensor | None, reference: Tensor | None, warm: bool
    ) -> Tensor:
        noise = self.gains
        assert noise is not None
        if next(noise.buffers()).device != tokens.hidden.device:
            noise.to(tokens.hidden.device)
        scores = score_all(tokens, head)
        counted = tokens.counted.view(-1, tokens.length)
        with torch.no_grad():
            nll = scores.nll.view_as(counted)
            if reference is None:
                gains = gains_of(nll, tokens.target.view_as(counted), counted)
            else:
                gains = gains_over(reference.reshape(nll.shape).to(nll.dtype), nll, counted)
            means = self._remembered(gains, index)
            inside = noise.weights(means) if not warm else torch.ones_like(means)
            weights = (inside[:, None] * counted).reshape(-1).to(scores.loss.dtype)
            if self.training:
                noise.update(self._joined(gains))
                self._remember(tokens, scores, 1 - weights, index, gains)
        self._last["weights"] = weights
        return kept_mean(tokens, head, scores, _listed(weights, scores, self._summed()), self.group)

    def _summed(self) -> Callable[[Tensor], Tensor] | None:
        if self.group is None:
            return None
        from .distributed import sum_over

        return lambda values: sum_over(values, self.group)  # type: ignore[arg-type]

    def _joined(self, gains: Tensor) -> Tensor:
        if self.group is None:
            return gains
        from .distributed import gather_rows, largest_over

        most = max(largest_over(len(gains), gains.device, self.group), 1)
        rows = gather_rows(torch.stack([gains, torch.ones_like(gains)], 1), self.group, most)[0]
        return torch.where(rows[:, 1] > 0, rows[:, 0], torch.nan)

    def _remembered(self, gains: Tensor, index: Tensor | None) -> Tensor:
        """The running means of the gains, including this visit; without indices the gains themselves."""
        if index is None or self.memory is None:
            return gains
        self.memory.prepare(index, 3, gains.device)
        rows, visits = self.memory.recall(self.memory.row_of(index, gains.device))
        return torch.where(visits > 0, torch.lerp(gains, rows[:, 2].to(gains.dtype), _FACTOR), gains)

    @torch.no_grad()
    def _remember(
        self, tokens: Tokens, scores: Scores, dropped: Tensor, index: Tensor | None, gains: Tensor | None = None
    ) -> None:
        if index is None or self.memory is None:
            return
        counted = tokens.counted.view(-1, tokens.length)
        n = counted.sum(1).clamp(min=1)
        means = [torch.where(counted, column.view_as(counted), 0.0).sum(1) / n for column in (dropped, scores.nll)]
        means.append(torch.zeros_like(means[0]) if gains is None else gains)
        seen = torch.stack(means, 1).float().nan_to_num()
        self.memory.prepare(index, 3, seen.device)
        row = self.memory.row_of(index, seen.device)
        old, visits = self.memory.recall(row)
        rows = torch.where((visits > 0)[:, None], torch.lerp(seen, old, _FACTOR), seen)
        self.memory.remember(row, rows, visits, None, seen[:, 0] > 0.5)

    def suspects(
        self, n: int = 20, *, tokens: Callable[[int], Any] | Sequence[Any] | None = None, tokenizer: Any = None
    ) -> list[TextSuspect]:
        """The documents of which the largest share was dropped, largest share first (m="auto", with `index`).

        Parameters
        ----------
        n : int, default=20
            Maximum number of documents. Documents without a dropped token are not listed.
        tokens : sequence or function, optional
            The tokens of a document, by its index.
        tokenizer : optional
            A tokenizer whose `decode` converts these tokens to text. The text is None unless both are given.

        Returns
        -------
        list of TextSuspect
            Entries with document (its index), dropped (the share of its tokens: the mean of 1 - weight), loss (the mean
            over its tokens), visits and text. Both numbers are running means over the visits.
        """
        memory = self.memory
        if memory is None or memory.rows.shape[1] == 0:
            raise ValueError(
                "suspects() needs documents with an index, got none; use m='auto' and call criterion(..., index=index)"
            )
        rows, visits = memory.rows[:-1].cpu(), memory.visits[:-1].cpu()
        order = torch.where(visits > 0, rows[:, 0], -1.0).argsort(descending=True, stable=True)[:n]
        found = []
        for i in order.tolist():
            if visits[i] == 0 or rows[i, 0] <= 0:
                break
            text = None
            if tokens is not None and tokenizer is not None:
                text = str(tokenizer.decode(tokens(i) if callable(tokens) else tokens[i]))
            found.append(TextSuspect(i, float(rows[i, 0]), float(rows[i, 1]), int(visits[i]), text))
        return found

    def get_extra_state(self) -> dict[str, Any]:
        return {"batches": self.batches, "m": self._keep.m, "k": self._keep.k, "automatic": self.automatic}

    def set_extra_state(self, state: Any) -> None:
        m = "auto" if state.get("automatic", self.automatic) else state["m"]
        self._keep = self._checked(m, state["k"])
        self.batches = state["batches"]

    def extra_repr(self) -> str:
        return f"m={self.m!r}, k={self.k!r}, key={self.key!r}, per={self.per!r}, warmup={self.warmup}"


@torch.no_grad()
def _listed(weights: Tensor, scores: Scores, summed: Callable[[Tensor], Tensor] | None) -> Kept:
    """The tokens with positive weight; their cuts are NaN. Their number is on the device, so this synchronises.

    `summed` adds a tensor over the processes of a group.
    """
    index = weights.nonzero()[:, 0]
    total, broken = weights.sum(), (scores.loss.isnan() & (weights > 0)).any().to(weights.dtype)
    if summed is not None:
        total, broken = summed(torch.stack([total, broken])).unbind()
    nothing = torch.full_like(total, torch.nan)
    return Kept(index, weights[index], total, broken == 0, nothing, nothing)
