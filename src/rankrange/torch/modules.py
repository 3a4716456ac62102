"""Losses as modules: the ranked range over a batch or a stream of batches, and the top-k multi-label loss.

AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m=0.1, k=0.9)          # samples
TKMLLoss(top_k=5)                                                      # labels
AoRRLoss(TKMLLoss(top_k=5, reduction="none"), m=0.1, k=0.9)            # one inside the other: TKML-AoRR
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.aggregates import RankWeights
from ..core.ranges import Rank, RankedRange
from .auto import AutoCut, has_classes
from .cuts import LAM, LAM_HAT, counts_in_batch, cut_weights, open_cut, weighted_sum
from .functional import select_in_batch, tkml
from .protect import ClassGuard, weights_inside_classes
from .rank_aggregates import group_weights, rank_weighted_mean
from .stream import StreamingCuts

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ..issues import LabelIssues


class RangeLoss(nn.Module):
    """A loss with the parameters m and k, which can be reassigned. `_checked(m, k)` of a subclass validates them.

    If a property raises an AttributeError, its message is kept; `nn.Module` would replace it.
    """

    _keep: RankedRange
    _checked: Callable[[Rank | str, Rank], RankedRange]
    automatic: bool  # whether the loss was made with m="auto"

    @property
    def m(self) -> Rank | str:
        return "auto" if self.automatic else self._keep.m

    @m.setter
    def m(self, m: Rank | str) -> None:
        self._keep = self._checked(m, self._keep.k)

    @property
    def k(self) -> Rank:
        return self._keep.k

    @k.setter
    def k(self, k: Rank) -> None:
        self._keep = self._checked(self.m, k)

    def set_range(self, m: Rank | str, k: Rank) -> None:
        """Set m and k together; assigned one after the other, the first new value may contradict the other old one."""
        self._keep = self._checked(m, k)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(type(self), name, None)
        return attribute.fget(self) if isinstance(attribute, property) and attribute.fget else super().__getattr__(name)


class AoRRLoss(RangeLoss):
    """Average of the losses ranked m+1 to k. The m largest (likely outliers) and the n-k smallest losses are dropped.

    Parameters
    ----------
    base : criterion, function or None
        A criterion that returns one loss per sample (reduction="none"). With None the losses themselves are passed in.
        All losses of a batch are ranked together, whatever their shape.
    m, k : int, float or "auto", default=0.0 and 1.0
        How many of the largest losses to drop, and the last rank to keep; an int is a count, a float a fraction. Counts
        that exceed the batch are an error. Both numbers may be reassigned during training. `m="auto"` (with k=1.0)
        estimates which samples have wrong labels and gives them smaller weights; losses without class targets are
        down-weighted if they are large. Call the loss as `criterion(output, target, index)` with the index of each
        sample in the data set (see `WithIndex`), without a base as `criterion(losses, index)`: it then stores a running
        mean of the predictions of each sample across epochs. Without indices only the current predictions are used. See
        `rankrange.torch.auto`.
    ranking : {"batch", "stream"}, default="batch"
        "batch" ranks within the batch. "stream" tracks the two cuts across batches, so ranks refer to the data set, and
        a batch full of outliers is dropped completely. It needs fractions; see `rankrange.torch.stream`. With m="auto"
        it has no effect.
    group : torch.distributed process group, optional
        A group whose batches are ranked together (see `ranked_range`). With m="auto" all its processes store the same
        running means.
    warmup : int or float, default=0
        The number of first training batches that use all losses; a float is a fraction of `total_batches`. Until they
        are over, batches in evaluation mode use all losses as well, so that both losses are comparable.
    step : float, default=0.1
        Step size of the tracked cuts (ranking="stream"). With the default they follow the losses within about twenty
        batches.
    per_class : bool, optional
        Whether to rank within the classes of the batch, so that each class loses the same share; for class targets and
        a given m > 0, without `group`, `ignore_index` and `aggregate`. By default this begins, with a warning, if a
        class would otherwise keep less than 70% of its proportional share, and ends once every class would keep 90%.
    total_batches : int, optional
        The number of training batches; required if `warmup` is a fraction.
    n_samples : int, optional
        The size of the data set, for m="auto"; required for indices in a `group`. Without it the stored table grows
        with the indices.
    ignore_index : int, optional
        Losses with this target (the second argument) are neither ranked nor counted. Pass it to `base` as well, for
        example `nn.CrossEntropyLoss(reduction="none", ignore_index=-100)`. Not available for m="auto".
    aggregate : None, "worst-group", "group-cvar" or RankWeights, default=None
        How the losses of a batch are combined. None is the ranked range. "worst-group" is the largest mean loss of a
        group, "group-cvar" the mean over the worst `group_share` of the groups. Both first drop the share m of the
        largest losses within each group, and the loss is called with `groups=`, one integer per sample.
        `RankWeights(...)` weights losses by their rank; m is then left at its default. All of these work on one batch:
        k, `ranking`, `group` and `ignore_index` are left at their defaults, and m is not "auto".
    group_share : float, default=0.5
        The share of the groups that "group-cvar" averages over, at least one group.
    groups : Tensor of int of shape (n_samples,), optional
        The group of each sample of the data set, for calls with `index=` instead of `groups=`. `aggregate` is then
        "worst-group" by default.

    Notes
    -----
    The loss of an empty batch is 0. A NaN among the losses makes it NaN. If the range is empty after fractions are
    rounded, one loss is kept. After a call `last_weights` has the weights of that batch (not for `RankWeights`), and
    `lam` and `lam_hat` are its cuts (not for m="auto" or with `aggregate`). Tracked cuts, running means and the count
    of warm-up batches change in training mode only and are part of the state_dict.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> criterion = AoRRLoss(m=1, k=3)
    >>> criterion(torch.tensor([9.0, 2.0, 1.0, 0.0]))
    tensor(1.5000)
    >>> criterion = AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=4)
    >>> output, target, index = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]), torch.arange(4)
    >>> criterion(output, target, index)
    tensor(0.6931)
    """

    def __init__(
        self,
        base: Callable[..., Tensor] | None = None,
        m: Rank | str = 0.0,
        k: Rank = 1.0,
        *,
        ranking: str = "batch",
        group: ProcessGroup | None = None,
        warmup: int | float = 0,
        step: float = 0.1,
        per_class: bool | None = None,
        total_batches: int | None = None,
        n_samples: int | None = None,
        ignore_index: int | None = None,
        aggregate: str | RankWeights | None = None,
        group_share: float = 0.5,
        groups: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.aggregate = "worst-group" if aggregate is None and groups is not None else aggregate
        self.group_share = group_share
        self.sample_groups: Tensor | None
        self.register_buffer("sample_groups", None if groups is None else torch.as_tensor(groups), persistent=False)
        _check_aggregate(self.aggregate, group_share, m, k, ranking, group, ignore_index)
        if per_class:
            _check_per_class(m == "auto", self.aggregate, group, ignore_index)
        if ignore_index is not None and m == "auto":
            raise ValueError(
                f"m='auto' does not support ignore_index, got ignore_index={ignore_index}; remove these samples first, "
                "or use LinearAoRRLoss for tokens"
            )
        self.ignore_index = ignore_index
        if ranking not in ("batch", "stream"):
            raise ValueError(f"ranking must be 'batch' or 'stream', got {ranking!r}; choose one of the two")
        reduction = getattr(base, "reduction", "none")
        if reduction != "none":
            raise ValueError(f"base must return one loss per sample, got reduction={reduction!r}; use reduction='none'")
        self.base, self.ranking, self.group = base, ranking, group
        self.warmup, self.per_class = _batches(warmup, total_batches), per_class
        self.automatic = m == "auto"
        self.auto = AutoCut(n_samples) if self.automatic else None
        self.cuts = StreamingCuts(step) if ranking == "stream" and self.auto is None else None
        self.guard = ClassGuard() if self.auto is None and per_class is None else None
        self._keep = self._checked(m, k)
        self._last: dict[str, Tensor] = {}  # a dict, because attribute assignment on a module is slow
        self.batches: Tensor
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64), persistent=self.warmup > 0)

    def _checked(self, m: Rank | str, k: Rank) -> RankedRange:
        if (m == "auto") != self.automatic or (isinstance(m, str) and m != "auto"):
            raise ValueError(
                f"m must be a count or a fraction, or 'auto' in the constructor, got m={m!r}; make a new loss"
            )
        if isinstance(m, str):
            if k != 1.0 or not isinstance(k, float):
                raise ValueError(f"m='auto' cuts large losses only and needs k=1.0, got k={k!r}; leave k out")
            return RankedRange(0.0, k)
        keep = RankedRange(m, k)
        if self.cuts is not None and not (isinstance(keep.k, float) and (isinstance(keep.m, float) or keep.m == 0)):
            raise ValueError(
                f"ranking='stream' does not know the size of the data set, so m and k must be fractions, "
                f"got m={m!r}, k={k!r}; divide them by the number of samples"
            )
        return keep

    @property
    def lam(self) -> Tensor:
        """The lower cut of the last batch: losses below it were dropped, unless losses were ranked within classes."""
        return self._last_call("cut")[LAM]

    @property
    def lam_hat(self) -> Tensor:
        """The upper cut of the last batch: losses above it were dropped, unless losses were ranked within classes."""
        return self._last_call("cut")[LAM_HAT]

    @property
    def last_weights(self) -> Tensor:
        """The weight of each loss of the last batch, in [0, 1], in the shape of the losses; 0 for dropped losses.

        For an aggregate over groups the largest weight is 1. There are no weights for `RankWeights`, and none during
        the warm-up of an `aggregate`.
        """
        losses = self._last_call("losses")
        if "weights" in self._last:
            return self._last["weights"].reshape(losses.shape).to(losses.dtype)
        return cut_weights(losses.reshape(-1), self._last_call("cut")).reshape(losses.shape).to(losses.dtype)

    @property
    def shares(self) -> Tensor:
        """The estimated share of wrong labels in each class, (classes,), for m="auto"; 0 for a class without samples.

        Without classes it is the dropped share of the positive losses, by weight, of shape (1,), and 0 if there were
        none. Before the first batch it is empty.
        """
        if self.auto is None:
            raise AttributeError(f"shares needs m='auto', got m={self.m!r}; make the loss with m='auto'")
        return self.auto.noise_model.shares()

    def sample_weights(self) -> Tensor:
        """The current weight of each sample, by its index (m="auto"); 1 for samples that were not visited.

        There are `n_samples` weights, or without `n_samples` as many as the largest visited index plus 1 (none
        before the first training batch with indices).
        """
        return self._automatic("sample_weights()").weights_of_all()

    def suspects(self) -> LabelIssues:
        """The training labels that are probably wrong, like the result of `rankrange.find_label_issues` (m="auto").

        It needs class targets of at most 128 classes, and training batches with the index of each sample.

        Returns
        -------
        LabelIssues
            The suspects. Rows are named by sample index, in `top` and `decide` too. The arrays have one entry per
            sample that was used in training, in the order of `index`. The column "cut" has the share of the visits at
            which the weight of a sample was below 0.5.
        """
        from .suspect_table import suspects_of

        return suspects_of(self._automatic("suspects()"))

    def _automatic(self, what: str) -> AutoCut:
        if self.auto is None:
            raise ValueError(f"{what} needs m='auto', got m={self.m!r}; make the loss with m='auto'")
        return self.auto

    def _last_call(self, what: str) -> Tensor:
        if what not in self._last:
            raise AttributeError(
                "lam, lam_hat and last_weights belong to the last batch, got none so far; call the loss first"
            )
        return self._last[what]

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        if self.aggregate is not None:
            return self._other_aggregate(args, kwargs)
        auto, base, index = self.auto, self.base, None  # looked up once, because submodule lookup is slow
        if auto is not None:
            args, index = _split_index(args, kwargs, base is None)
        losses = args[0] if base is None else base(*args, **kwargs)
        if losses.dim() == 0:
            raise ValueError("base must return one loss per sample, got a single number; use reduction='none'")
        flat = losses if losses.dim() == 1 else losses.reshape(-1)
        if self.ignore_index is not None:
            return self._without_ignored(flat, losses.shape, args, self.ignore_index)
        self._last["losses"] = losses.detach()
        warm = self.batches < self.warmup if self.warmup else None
        if auto is None:
            value = self._ranked(flat, args, warm)
        else:
            value, self._last["weights"] = auto.forward(flat, args, index, self.group, warm)
        if self.warmup and self.training:
            self.batches += 1
        return value

    def _other_aggregate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """The loss for an aggregate over groups or with weights by rank; during the warm-up the mean of all losses."""
        groups, index = kwargs.pop("groups", None), kwargs.pop("index", None)
        losses = args[0] if self.base is None else self.base(*args, **kwargs)
        flat = losses.reshape(-1)
        self._last.clear()
        self._last["losses"] = losses.detach()
        warm = self.warmup > 0 and int(self.batches) < self.warmup
        if self.warmup and self.training:
            self.batches += 1
        if warm:
            return flat.sum() / max(len(flat), 1)
        if isinstance(self.aggregate, RankWeights):
            return rank_weighted_mean(flat, self.aggregate)
        if groups is None and index is not None and self.sample_groups is not None:
            groups = self.sample_groups[index]
        if groups is None:
            raise ValueError(f"aggregate={self.aggregate!r} needs the group of each sample; pass groups= to the call")
        worst = self.group_share if self.aggregate == "group-cvar" else 0.0
        weights = group_weights(flat, torch.as_tensor(groups, device=flat.device).reshape(-1), self._keep.m, worst)
        self._last["weights"] = weights / weights.max().clamp_min(1e-300) if len(weights) else weights
        return (weights.to(flat.dtype) * flat).sum()

    def _without_ignored(self, losses: Tensor, shape: torch.Size, args: tuple[Any, ...], ignore_index: int) -> Tensor:
        """The loss without ignored targets. Their number is known only on the device, so this synchronises.

        It is an error if the second argument is not one target per loss.
        """
        if len(args) < 2 or not isinstance(args[1], Tensor) or args[1].numel() != len(losses):
            given = tuple(args[1].shape) if len(args) > 1 and isinstance(args[1], Tensor) else "none"
            raise ValueError(
                f"ignore_index needs a target for each of the {len(losses)} losses as the second argument, got {given}"
            )
        counted = torch.ne(args[1].reshape(-1), ignore_index).nonzero()[:, 0]
        counted_losses = losses[counted]
        warm = self.batches < self.warmup if self.warmup else None
        value, self._last["cut"] = self._aggregate(counted_losses, warm)
        weights = cut_weights(counted_losses.detach(), self._last["cut"])
        self._last["losses"] = losses.detach().reshape(shape)
        self._last["counted"] = counted
        self._last["weights"] = weights.new_zeros(len(losses)).index_copy(0, counted, weights)
        if self.warmup and self.training:
            self.batches += 1
        return value

    def _ranked(self, losses: Tensor, args: tuple[Any, ...], warm: Tensor | None) -> Tensor:
        value, self._last["cut"] = self._aggregate(losses, warm)
        classes = self.per_class is not False and self.group is None and len(args) > 1 and has_classes(*args[:2])
        if self.per_class and not classes:
            raise ValueError(
                "per_class=True needs class scores (batch, classes) and one class label per sample as the first two "
                "arguments, got others; leave per_class out"
            )
        if not classes or self._keep.m == 0 or len(losses) == 0:
            self._last.pop("weights", None)
            return value
        target, n_classes = args[1].long(), args[0].shape[1]
        m, k = (float(rank) / len(losses) for rank in counts_in_batch(self._keep, len(losses)))
        weights = cut_weights(losses.detach(), self._last["cut"])
        inside = weights_inside_classes(losses.detach(), target, m, k)
        if self.guard is None:
            protect = torch.ones((), dtype=torch.bool, device=losses.device)
        else:
            self.guard.prepare(n_classes, losses.device)
            protect = self.guard(weights, target, k - m)
            if not torch.compiler.is_compiling():
                self.guard.warn(k - m)
        if warm is not None:
            protect = protect & ~warm
        self._last["weights"] = torch.where(protect, inside, weights)
        protected = weighted_sum(losses, inside, 1.0 / ((k - m) * len(losses)))
        return torch.where(protect & ~value.isnan(), protected, value)

    def _aggregate(self, losses: Tensor, warm: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.cuts is not None:
            return self.cuts(losses, self._keep, self.group, warm)
        if self.group is not None:
            from .distributed import joint_ranked_range

            return joint_ranked_range(losses, self._keep, "mean", self.group, in_batches=True, keep_all=warm)
        if losses.shape[0] == 0:
            return losses.sum(), open_cut(losses)
        value, cut = select_in_batch(losses, self._keep)
        if warm is not None:
            value, cut = torch.where(warm, losses.mean(), value), torch.where(warm, open_cut(losses), cut)
        return value, cut

    def extra_repr(self) -> str:
        shown: dict[str, Any] = {"m": self.m, "k": self.k, "ranking": self.ranking, "warmup": self.warmup}
        if self.aggregate is not None:
            shown = {"aggregate": self.aggregate, **shown}
        if self.aggregate == "group-cvar":
            shown["group_share"] = self.group_share
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _check_aggregate(
    aggregate: Any, group_share: float, m: Any, k: Any, ranking: str, group: Any, ignore_index: int | None
) -> None:
    """Raise an error if the aggregate is unknown or contradicts other parameters, or if `group_share` is invalid."""
    if aggregate is None:
        return
    if not isinstance(aggregate, RankWeights) and aggregate not in ("worst-group", "group-cvar"):
        raise ValueError(f"aggregate must be None, 'worst-group', 'group-cvar' or RankWeights(...), got {aggregate!r}")
    given = {"m": m if m == "auto" or (isinstance(aggregate, RankWeights) and m != 0) else None}
    given |= {"k": None if k == 1.0 else k, "ranking": None if ranking == "batch" else ranking}
    given |= {"group": group, "ignore_index": ignore_index}
    wrong = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if wrong:
        raise ValueError(f"aggregate={aggregate!r} works on one batch; leave out {', '.join(wrong)}")
    if not 0.0 < group_share <= 1.0:
        raise ValueError(f"group_share must be in (0, 1], a share of the groups, got {group_share!r}")


def _check_per_class(automatic: bool, aggregate: Any, group: Any, ignore_index: int | None) -> None:
    given = {"m": "auto" if automatic else None, "aggregate": aggregate, "group": group, "ignore_index": ignore_index}
    wrong = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if wrong:
        raise ValueError(f"per_class=True ranks within the classes of one batch; leave out {', '.join(wrong)}")


def _batches(warmup: int | float, total: int | None) -> int:
    """The number of warm-up batches; `warmup` is this number or a fraction of `total`, otherwise it is an error."""
    if isinstance(warmup, float) and 0.0 <= warmup <= 1.0:
        if warmup and total is None:
            raise ValueError(
                f"a fractional warmup needs total_batches, got warmup={warmup} and total_batches=None; "
                "pass total_batches=epochs * len(loader)"
            )
        return round(warmup * (total or 0))
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ValueError(f"warmup must be a count of batches or a fraction, got {warmup!r}; 0 switches it off")
    return warmup


def _split_index(
    args: tuple[Any, ...], kwargs: dict[str, Any], losses_given: bool
) -> tuple[tuple[Any, ...], Tensor | None]:
    """The positional arguments without the sample indices, and the indices or None.

    The indices are `index=`, which is removed from `kwargs`, or the third argument, or without a base (`losses_given`)
    the second. It is an error if they are not one integer per sample.
    """
    index, n_own = kwargs.pop("index", None), 1 if losses_given else 2
    if index is None and len(args) > n_own:
        args, index = args[:n_own], args[n_own]
    if index is None:
        return args, None
    n = args[0].shape[0]
    if isinstance(index, Tensor) and index.dtype == torch.int64 and index.shape == (n,):
        return args, index
    index = torch.as_tensor(index)
    if index.shape != (n,) or index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(
            f"index must hold one integer per sample, shape ({n},), got {index.dtype} of shape {tuple(index.shape)}; "
            "wrap the data set in rankrange.torch.WithIndex and pass the index that it returns"
        )
    return args, index.long()


class TKMLLoss(nn.Module):
    """Top-k multi-label loss: the true labels of a row should be among its top_k highest scores. See `tkml`.

    Parameters
    ----------
    top_k : int
        How many labels are predicted.
    two_sided : bool, default=True
        For rows with more than top_k true labels: whether to require that the labels with the top_k highest scores are
        all true. False is the loss of the paper.
    reduction : {"mean", "sum", "none"}, default="mean"
        The reduction over the rows; use "none" inside `AoRRLoss`.

    Examples
    --------
    >>> import torch
    >>> TKMLLoss(1)(torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([[0, 1, 0]]))
    tensor(1.)
    """

    def __init__(self, top_k: int, *, two_sided: bool = True, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}; choose one of the three")
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be an int of at least 1, got {top_k!r}")
        self.top_k, self.two_sided, self.reduction = top_k, two_sided, reduction

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        return tkml(scores, target, self.top_k, two_sided=self.two_sided, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"top_k={self.top_k}, two_sided={self.two_sided}, reduction={self.reduction!r}"


class AccuracySchedule:
    """Set k of a loss by the training accuracy, as ordered SGD does: easy samples are dropped as accuracy increases.

    Parameters
    ----------
    loss : AoRRLoss
        The loss whose k is set.
    levels : mapping of float to int or float
        The k to use from each accuracy on. Below the lowest of these accuracies k has its initial value.

    Examples
    --------
    >>> schedule = AccuracySchedule(AoRRLoss(k=1.0), {0.8: 0.5, 0.9: 0.25})
    >>> schedule.step(0.85)  # once per epoch
    0.5
    """

    def __init__(self, loss: AoRRLoss, levels: Mapping[float, Rank]) -> None:
        for k in levels.values():
            loss._checked(loss.m, k)  # validate k now, not after ten epochs
        self.loss, self.levels, self.start = loss, dict(sorted(levels.items())), loss.k

    def step(self, accuracy: float) -> Rank:
        """Set k for the given training accuracy, and return it."""
        reached = [k for level, k in self.levels.items() if accuracy >= level]
        self.loss.k = reached[-1] if reached else self.start
        return self.loss.k

    def state_dict(self) -> dict[str, Rank]:
        return {"start": self.start, "k": self.loss.k}

    def load_state_dict(self, state: Mapping[str, Rank]) -> None:
        self.start, self.loss.k = state["start"], state["k"]
