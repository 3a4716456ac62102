"""Losses as modules: the ranked range of a batch or a stream of batches, worst groups, the top-k multi-label loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.ranges import Rank, RankedRange
from .cuts import LAM, LAM_HAT, counts_in_batch, cut_weights, open_cut, ranks_of, weighted_sum
from .distributed import joint_ranked_range
from .functional import as_rows, check_choice, check_top_k, select, tkml
from .kernels import transforms_active
from .noisy_labels import NoisyLabels, checked_index, has_classes
from .stream import StreamingCuts

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ..issues import LabelIssues


class RangeLoss(nn.Module):
    """A loss with the parameters m and k, which can be reassigned; they and the number of batches are in its state."""

    _keep: RankedRange
    _last: dict[str, Any]  # what is known of the last batch
    automatic: bool  # whether the loss was made with m="auto"
    batches: Any  # the number of training batches so far: a tensor, or an int

    @property
    def m(self) -> Rank | str:
        return "auto" if self.automatic else self._keep.m

    @m.setter
    def m(self, m: Rank | str) -> None:
        self.set_range(m, self._keep.k)

    @property
    def k(self) -> Rank:
        return self._keep.k

    @k.setter
    def k(self, k: Rank) -> None:
        self.set_range(self.m, k)

    def set_range(self, m: Rank | str, k: Rank) -> None:
        """Set m and k together; assigned one after the other, the first new value may contradict the other old one."""
        if (m == "auto") != self.automatic or (isinstance(m, str) and m != "auto"):
            raise ValueError(
                f"m must be a count or a fraction, or 'auto' in the constructor, got m={m!r} for a loss made with "
                f"m={'auto' if self.automatic else 'a number'!r}; make a new loss"
            )
        if isinstance(m, str) and (k != 1.0 or not isinstance(k, float)):
            raise ValueError(f"m='auto' cuts large losses only and needs k=1.0, got k={k!r}; leave k out")
        keep = RankedRange(0.0 if isinstance(m, str) else m, k)
        self._check_range(keep)
        self._keep = keep

    def _check_range(self, keep: RankedRange) -> None:
        """Raise an error if a subclass does not support this range."""

    @property
    def lam(self) -> Tensor:
        """The lower cut of the last batch: losses (or keys) below it were dropped."""
        return self._last_call("cut")[LAM]

    @property
    def lam_hat(self) -> Tensor:
        """The upper cut of the last batch, infinite if m = 0: losses (or keys) above it were dropped."""
        return self._last_call("cut")[LAM_HAT]

    def _last_call(self, what: str) -> Any:
        if what not in self._last:
            raise AttributeError(
                f"{what} of the last batch: call the loss first (there are no cuts with m='auto' or per_class=True)"
            )
        return self._last[what]

    def get_extra_state(self) -> dict[str, Any]:
        return {"m": self.m, "k": self.k, "batches": int(self.batches)}

    def set_extra_state(self, state: Any) -> None:
        self.set_range(state["m"], state["k"])
        self.batches = 0 * self.batches + state["batches"]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            attribute = getattr(type(self), name, None)
            if isinstance(attribute, property) and attribute.fget:
                return attribute.fget(self)  # raises the error of the property, which nn.Module has replaced
            raise


class AoRRLoss(RangeLoss):
    """Average of the losses ranked m+1 to k. The m largest (likely outliers) and the n-k smallest losses are dropped.

    Parameters
    ----------
    base : criterion, function or None
        It returns one loss per sample (reduction="none"); with None the losses themselves are passed in. Class weights
        of a `CrossEntropyLoss` or `NLLLoss` count as repetitions of a sample: m=0 is PyTorch's weighted mean.
    m, k : int, float or "auto", default=0.0 and 1.0
        How many of the largest losses to drop, and the last rank to keep: counts or fractions, which may be reassigned.
        `m="auto"` (with `n_samples`) gives smaller weights to samples whose label is probably wrong, or without class
        targets to large losses. Call the loss as `criterion(output, target, index)`, or without a base as
        `criterion(losses, index)`, with the index of each sample in the data set (see `WithIndex`); without indices
        only the current predictions are used.
    ranking : {"batch", "stream"}, default="batch"
        "stream" tracks the two cuts across batches, so ranks refer to the data set, and a batch full of outliers is
        dropped completely; it needs fractions. With m="auto" it has no effect.
    per_class : bool, default=False
        Whether to rank within the classes of the batch, so that each class loses the same share; ties share there too.
    group : torch.distributed process group, optional
        The processes whose batches are ranked together (see `ranked_range`).
    warmup, total_batches : int or float
        The number of first training batches that use all losses, or with `total_batches` their fraction.
    step : float, default=0.1
        Step size of the tracked cuts (ranking="stream"), which then follow the losses within about twenty batches.
    n_samples : int, optional
        The size of the data set; required for m="auto".
    ignore_index : int, optional
        Losses with this target (the second argument) are neither ranked, counted nor stored; pass it to `base` as well.
        With m="auto" targets that are no class are always left out.

    Notes
    -----
    With a given m, class-conditional label noise, or a class that is learned late, can put most of one class among the
    m largest losses, and the network forgets it. Use m="auto" then, or `per_class=True`.

    The loss of an empty batch is 0; a NaN among the losses, or on a GPU an index outside of the data set, makes it NaN.
    If the range is empty after fractions are rounded, one loss is kept. After a call `last_weights` has the weights of
    that batch, and `lam` and `lam_hat` are its cuts. All state changes in training mode only and is in the state_dict.
    First and second derivatives are exact. `vmap` works for losses without state; other transforms of torch.func cannot
    change state, so call `eval()` before.

    Examples
    --------
    >>> import torch
    >>> AoRRLoss(m=1, k=3)(torch.tensor([9.0, 2.0, 1.0, 0.0]))
    tensor(1.5000)
    >>> criterion = AoRRLoss(torch.nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=4)
    >>> criterion(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0]), torch.arange(4))
    tensor(0.6931)
    """

    def __init__(
        self,
        base: Callable[..., Tensor] | None = None,
        m: Rank | str = 0.0,
        k: Rank = 1.0,
        *,
        ranking: str = "batch",
        per_class: bool = False,
        group: ProcessGroup | None = None,
        warmup: int | float = 0,
        total_batches: int | None = None,
        step: float = 0.1,
        n_samples: int | None = None,
        ignore_index: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("ranking", ranking, "batch", "stream")
        self.base, self.ranking, self.per_class, self.group = checked_base(base), ranking, per_class, group
        self.ignore_index, self.warmup = ignore_index, warmup_batches(warmup, total_batches)
        self.automatic = m == "auto"
        self._check_combination()
        self.auto = NoisyLabels(n_samples) if self.automatic else None
        self.cuts = StreamingCuts(step) if ranking == "stream" and not self.automatic else None
        self.set_range(m, k)
        self._last = {}  # a dict, because attribute assignment on a module is slow
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64), persistent=False)

    def _check_combination(self) -> None:
        """Raise an error for settings that exclude each other."""
        one_batch = "per_class=True" if self.per_class else "class weights" if with_class_weights(self.base) else None
        others = {"ranking='stream'": self.ranking == "stream", "group=": self.group is not None}
        others["m='auto'"] = self.automatic and self.per_class
        wrong = [name for name, given in others.items() if given]
        if one_batch and wrong:
            raise ValueError(f"{one_batch} ranks within one batch, got {' and '.join(wrong)} as well; leave out one")

    def _check_range(self, keep: RankedRange) -> None:
        if self.cuts is not None and not (isinstance(keep.k, float) and (isinstance(keep.m, float) or keep.m == 0)):
            raise ValueError(
                f"ranking='stream' does not know the size of the data set, so m and k must be fractions, "
                f"got m={keep.m!r}, k={keep.k!r}; divide them by the number of samples"
            )

    @property
    def last_weights(self) -> Tensor:
        """The weight of each loss of the last batch, in [0, 1], in the shape of the losses; 0 for dropped losses."""
        losses = self._last_call("losses")
        flat, counted, weights = losses.reshape(-1), self._last.get("counted"), self._last.get("weights")
        if weights is None:
            weights = cut_weights(flat if counted is None else flat[counted], self._last_call("cut"))
        if counted is not None and weights.shape != flat.shape:
            weights = weights.new_zeros(losses.numel()).masked_scatter(counted, weights)
        return weights.reshape(losses.shape).to(losses.dtype)

    @property
    def shares(self) -> Tensor:
        """The estimated share of wrong labels in each class (m="auto"); without classes that of large losses, (1,)."""
        return self._automatic("shares", AttributeError).shares()

    def sample_weights(self) -> Tensor:
        """The current weight of each of the `n_samples` samples (m="auto"); 1 for samples that were not visited."""
        return self._automatic("sample_weights()").weights_of_all()

    def suspects(self) -> LabelIssues:
        """The training labels that are probably wrong (m="auto", at most 128 classes, batches with sample indices).

        It is as from `rankrange.find_label_issues`; rows are named by sample index. The arrays have one entry per
        sample that was used in training, in the order of `index`. The column "cut" has the share of the visits at which
        the weight of a sample was below 0.5.
        """
        return self._automatic("suspects()").suspects()

    def _automatic(self, what: str, error: type[Exception] = ValueError) -> NoisyLabels:
        if self.auto is None:
            raise error(f"{what} needs m='auto', got m={self.m!r}; make the loss with m='auto'")
        return self.auto

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        base, index = self.base, None
        if kwargs and isinstance(base, nn.Module):  # the names of PyTorch's criteria
            args += tuple(kwargs.pop(name) for name in ("input", "target") if name in kwargs)
        if self.auto is not None:
            args, index = _split_index(args, kwargs, base is None)
        losses = args[0] if base is None else base(*args, **kwargs)
        last: dict[str, Any] = {"losses": losses.detach()}
        flat = as_rows(losses, None)
        if self.warmup and self.batches.device != losses.device:
            self.to(losses.device)
        warm = self.batches < self.warmup if self.warmup else None
        masses, counted = self._masses(args), None
        if self.ignore_index is not None:
            counted = _counted(flat, args, self.ignore_index)
        if self.auto is not None:
            value, last["weights"], last["counted"] = self.auto(flat, args, index, counted, self.group, warm, masses)
        else:
            if counted is not None:
                last["counted"], flat, masses = counted, flat[counted], None if masses is None else masses[counted]
            value = self._ranked(flat, args, warm, masses, last)
        if self.warmup and self.training:
            self.batches += 1
        if not transforms_active():
            self._last = last
        return value

    def _masses(self, args: tuple[Any, ...]) -> Tensor | None:
        """The class weight of each sample; None without class weights, and for probabilities as in PyTorch's mean."""
        base = with_class_weights(self.base)
        if base is None or args[1].is_floating_point():
            return None
        ones = torch.ones_like(args[0])
        return -F.nll_loss(ones, args[1], base.weight, ignore_index=base.ignore_index, reduction="none").reshape(-1)

    def _ranked(
        self, losses: Tensor, args: tuple[Any, ...], warm: Tensor | None, masses: Tensor | None, last: dict[str, Any]
    ) -> Tensor:
        """The value of a batch with a given m; its cut, or its weights, are added to `last`."""
        if losses.shape[0] == 0 and self.cuts is None and self.group is None:
            last["cut"] = open_cut(losses)
            return losses.sum()
        if self.cuts is not None:
            value, last["cut"] = self.cuts(losses, self._keep, self.group, warm)
            return value
        if self.group is not None:
            value, last["cut"] = joint_ranked_range(
                losses, self._keep, "mean", self.group, in_batches=True, keep_all=warm
            )
            return value
        if masses is not None or self.per_class:
            last["weights"] = weights = self._shares(losses, args, warm, masses, last.get("counted"))
            return weighted_sum(losses, weights, 1.0 / (weights if masses is None else weights * masses).sum())
        value, last["cut"] = select(losses, *counts_in_batch(self._keep, losses.shape[0]))
        if warm is not None:
            last["cut"] = torch.where(warm, open_cut(losses), last["cut"])
            value = torch.where(warm, losses.mean(), value)
        return value

    def _shares(
        self, losses: Tensor, args: Any, warm: Tensor | None, masses: Tensor | None, counted: Tensor | None
    ) -> Tensor:
        """Weights in [0, 1] by rank within classes, or among losses with masses; ties share equally."""
        segment = torch.zeros_like(losses, dtype=torch.int64)
        if self.per_class:
            if len(args) < 2 or not has_classes(*args[:2]):
                raise ValueError(
                    "per_class=True needs class scores (batch, classes) and one class label per sample as the first "
                    "two arguments, got others; leave per_class out"
                )
            segment = args[1].long() if counted is None else args[1].long()[counted]
        values = losses.detach()
        if masses is not None:
            values = torch.where(masses > 0, values / masses, -torch.inf)
        ranks = ranks_of(values, segment, masses)
        n: int | Tensor = len(losses) if masses is None else masses.sum()
        keep = counts_in_batch(self._keep, len(losses)) if masses is None else (self._keep.m, self._keep.k)
        m, k = (rank if isinstance(rank, float) else rank / n for rank in keep)
        shares = ranks.shares(m * ranks.total, k * ranks.total)
        if warm is not None:
            shares = torch.where(warm, 1.0, shares)
        return torch.where(values.isnan().any(), torch.nan, shares)

    def extra_repr(self) -> str:
        return f"m={self.m!r}, k={self.k!r}, ranking={self.ranking!r}, per_class={self.per_class}, warmup={self.warmup}"


def checked_base(base: Callable[..., Tensor] | None) -> Callable[..., Tensor] | None:
    reduction = getattr(base, "reduction", "none")
    if reduction != "none":
        raise ValueError(f"base must return one loss per sample, got reduction={reduction!r}; use reduction='none'")
    return base


def warmup_batches(warmup: int | float, total: int | None) -> int:
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


def with_class_weights(base: Any) -> nn.CrossEntropyLoss | nn.NLLLoss | None:
    """The criterion, if it has class weights, by whose sum PyTorch divides its mean."""
    weighted = isinstance(base, nn.CrossEntropyLoss | nn.NLLLoss) and base.weight is not None
    return base if weighted else None


def _counted(losses: Tensor, args: tuple[Any, ...], ignore_index: int) -> Tensor:
    """The mask of the targets that are not ignored. Their number is on the device, so its use synchronises."""
    target = args[1] if len(args) > 1 else None
    if not isinstance(target, Tensor) or target.numel() != len(losses):
        given = tuple(target.shape) if isinstance(target, Tensor) else "none"
        raise ValueError(
            f"ignore_index needs a target for each of the {len(losses)} losses as the second argument, got {given}"
        )
    return torch.ne(target.reshape(-1), ignore_index).to(losses.device)


def _split_index(
    args: tuple[Any, ...], kwargs: dict[str, Any], losses_given: bool
) -> tuple[tuple[Any, ...], Tensor | None]:
    """The arguments without the sample indices (`index=`, the third, or without a base the second), and the indices."""
    index, n_own = kwargs.pop("index", None), 1 if losses_given else 2
    if index is None and len(args) > n_own:
        args, index = args[:n_own], args[n_own]
    if index is None:
        return args, None
    return args, checked_index(index, args[0].shape[0])


class WorstGroupLoss(nn.Module):
    """Mean loss of the worst group, or of the worst groups, after the largest losses of each group are dropped.

    Parameters
    ----------
    base : criterion, function or None
        As in `AoRRLoss`.
    m : int or float, default=0.0
        How many samples to drop, as a count or a fraction of the batch; up to rounding, the same share of each group is
        dropped. A group that loses all its samples does not count.
    worst : float, optional
        The share of the groups to average over, at least one group; the last one may have a fractional weight. None is
        the worst group only.

    Notes
    -----
    Call it as `criterion(output, target, groups=groups)`, with one integer per sample. After a call `last_weights` has
    the weights of the samples, which sum to 1; tied losses and tied groups share them. A NaN makes the loss NaN.

    Examples
    --------
    >>> import torch
    >>> WorstGroupLoss()(torch.tensor([1.0, 2.0, 3.0, 5.0]), groups=torch.tensor([0, 0, 1, 1]))
    tensor(4.)
    """

    def __init__(self, base: Callable[..., Tensor] | None = None, m: Rank = 0.0, worst: float | None = None) -> None:
        super().__init__()
        if worst is not None and not 0.0 < worst <= 1.0:
            raise ValueError(f"worst must be a share of the groups in (0, 1], or None, got {worst!r}")
        self.base, self.m, self.worst = checked_base(base), RankedRange(m, 1.0).m, worst
        self.last_weights: Tensor | None = None

    def forward(self, *args: Any, groups: Tensor, **kwargs: Any) -> Tensor:
        losses = (args[0] if self.base is None else self.base(*args, **kwargs)).reshape(-1)
        groups = torch.as_tensor(groups, device=losses.device).reshape(-1)
        if groups.shape != losses.shape or groups.is_floating_point():
            raise ValueError(
                f"groups must hold one integer per loss, got {groups.dtype} of shape {tuple(groups.shape)} for "
                f"{len(losses)} losses"
            )
        self.last_weights = weights = self._weights(losses.detach(), groups) if len(losses) else losses.detach()
        return weighted_sum(losses, weights, 1.0)

    def _weights(self, losses: Tensor, groups: Tensor) -> Tensor:
        """Weights (n,) that sum to 1: of the samples left in each group, times the weight of the group."""
        _, code, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
        quotas = _quotas(counts_in_batch(RankedRange(self.m, 1.0), len(losses))[0], sizes.double())
        left = ranks_of(losses, code).shares(quotas[code], sizes.double()[code])
        mass = torch.zeros_like(quotas).index_add(0, code, left).round()
        finite = torch.where(left > 0, losses.double(), 0.0)
        means = torch.zeros_like(quotas).index_add(0, code, left * finite) / mass.clamp(min=1.0)
        means = torch.where(mass > 0, means, -torch.inf)
        count = ((self.worst or 0.0) * (mass > 0).sum()).clamp(min=1.0)
        share = ranks_of(means, torch.zeros_like(sizes)).shares(0.0, count) / count
        weights = (share / mass.clamp(min=1.0))[code] * left
        return torch.where(losses.isnan().any(), torch.nan, weights)

    def extra_repr(self) -> str:
        return f"m={self.m!r}, worst={self.worst!r}"


def _quotas(m: int, sizes: Tensor) -> Tensor:
    """m divided in proportion to the sizes, in integers, by largest remainders."""
    exact = m * sizes / sizes.sum()
    whole = torch.floor(exact)
    most = torch.argsort(whole - exact, stable=True)[: round(m - float(whole.sum()))]
    return whole.index_add(0, most, torch.ones_like(most, dtype=whole.dtype))


class TKMLLoss(nn.Module):
    """Top-k multi-label loss: the true labels of a row should be among its top_k highest scores. See `tkml`.

    Parameters
    ----------
    top_k, two_sided, reduction : int, bool and str
        As in `tkml`; use reduction="none" inside `AoRRLoss`.

    Examples
    --------
    >>> import torch
    >>> TKMLLoss(1)(torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([[0, 1, 0]]))
    tensor(1.)
    """

    def __init__(self, top_k: int, *, two_sided: bool = True, reduction: str = "mean") -> None:
        super().__init__()
        check_choice("reduction", reduction, "mean", "sum", "none")
        check_top_k(top_k)
        self.top_k, self.two_sided, self.reduction = top_k, two_sided, reduction

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        return tkml(scores, target, self.top_k, two_sided=self.two_sided, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"top_k={self.top_k}, two_sided={self.two_sided}, reduction={self.reduction!r}"
