"""A callback with which the Hugging Face Trainer, and the SFTTrainer of `trl`, train with a robust loss and log it.

It uses the trainer's own logger, so TensorBoard, MLflow and Weights & Biases show the same values.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .distributed import share_of_items
from .losses import AoRRLoss, with_class_weights
from .token_module import LinearAoRRLoss

__all__ = ["hugging_face_callback", "loss_figures"]


def loss_figures(criterion: Any, *, suspects: bool = False) -> dict[str, float]:
    """The state of a loss after the last batch, as numbers for a logger.

    Parameters
    ----------
    criterion : AoRRLoss or LinearAoRRLoss
        The loss; before its first call the dict is empty.
    suspects : bool, default=False
        Whether to count the suspects as well (m="auto"), if samples or documents have an index.

    Returns
    -------
    dict of str to float
        "kept": the mean weight of the last batch. With a given m, "cut": the upper cut. With m="auto", "share": the
        estimated share of wrong labels (the mean over classes) or of noise; "share_0" and so on: that of each class;
        "suspects": their number, or that of documents of which more than half was dropped. All are finite.

    Examples
    --------
    >>> criterion = AoRRLoss(m=1)
    >>> _ = criterion(torch.tensor([4.0, 3.0, 2.0, 1.0]))
    >>> loss_figures(criterion)
    {'kept': 0.75, 'cut': 4.0}
    """
    last = criterion._last
    if not last:
        return {}
    weights = criterion.last_weights.float()
    found = {"kept": float(weights.sum() / last.get("counted", torch.ones_like(weights)).sum())}
    if "cut" in last:
        found["cut"] = float(criterion.lam_hat)
    if criterion.automatic:
        found |= _shares(criterion)
        if suspects:
            found |= _suspects(criterion)
    return {name: value for name, value in found.items() if math.isfinite(value)}  # all that loggers accept


def _shares(criterion: Any) -> dict[str, float]:
    if isinstance(criterion, LinearAoRRLoss):
        return {"share": float(criterion.share)}
    seen = (criterion.auto.sums[:, 0] > 0) | (len(criterion.auto.sums) == 1)
    shares = torch.where(seen, criterion.shares, torch.nan).tolist()
    found = {"share": float(torch.tensor(shares).nanmean())}
    return found | {f"share_{i}": share for i, share in enumerate(shares) if len(shares) > 1}


def _suspects(criterion: Any) -> dict[str, float]:
    """The number of suspects; none if samples or documents have no index, or samples no classes."""
    try:
        if isinstance(criterion, AoRRLoss):
            return {"suspects": float(len(criterion.suspects()))}
        return {
            "suspects": float(sum(found.dropped > 0.5 for found in criterion.suspects(criterion.history.n_samples)))
        }
    except (ValueError, AttributeError):
        return {}


def hugging_face_callback(criterion: AoRRLoss | LinearAoRRLoss, *, prefix: str = "rankrange/") -> Any:
    """Make a callback that lets `transformers.Trainer` or `trl.SFTTrainer` train with a robust loss.

    Parameters
    ----------
    criterion : AoRRLoss or LinearAoRRLoss
        The loss: `AoRRLoss` of logits and labels for a classifier, `LinearAoRRLoss` for a language model.
    prefix : str, default="rankrange/"
        The prefix of the names of logged values.

    Returns
    -------
    transformers.TrainerCallback
        The callback. Its method `attach(trainer)` sets the loss of the trainer. The key "index" of the samples, from
        `rankrange.torch.WithIndex` or from a column of that name, is passed to the loss and not to the model. The
        callback logs values at every logging step, counts suspects at the end of an epoch, and saves the state of the
        loss with each checkpoint. m="auto" needs `remove_unused_columns=False`. A language model is evaluated with the
        trainer's own loss, the mean of all tokens.

    Examples
    --------
    >>> import transformers  # doctest: +SKIP
    >>> criterion = AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=len(dataset))  # doctest: +SKIP
    >>> trainer = transformers.Trainer(model, arguments, train_dataset=WithIndex(dataset))  # doctest: +SKIP
    >>> hugging_face_callback(criterion).attach(trainer)  # doctest: +SKIP
    """
    import transformers

    class RankedRangeCallback(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.criterion, self.trainer = criterion, None

        def attach(self, trainer: Any) -> Any:
            """Set the loss of the trainer and add this callback; returns the callback."""
            _check_trainer(trainer, criterion)
            self.trainer = trainer
            _use_group(criterion)
            trainer.data_collator = _IndexCollator(trainer.data_collator)
            _use_loss(trainer, criterion)
            trainer.add_callback(self)
            return self

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if control.should_log:
                self._log(suspects=False)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._log(suspects=True)

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                torch.save(criterion.state_dict(), _estimates(args, state))

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not state.global_step:
                return
            path = _estimates(args, state)
            if path.is_file():
                criterion.load_state_dict(torch.load(path, weights_only=True))
            else:
                warnings.warn(f"{path} is missing, so the estimates of the loss start from scratch", stacklevel=2)

        def _log(self, suspects: bool) -> None:
            figures = loss_figures(criterion, suspects=suspects)
            if figures and self.trainer is not None:
                self.trainer.log({prefix + name: value for name, value in figures.items()})

    return RankedRangeCallback()


def _estimates(args: Any, state: Any) -> Path:
    return Path(args.output_dir, f"checkpoint-{state.global_step}", "rankrange.pt")


def _check_trainer(trainer: Any, criterion: Any) -> None:
    kinds = [kind.__name__ for kind in type(trainer).__mro__ if kind.__module__.startswith("trl.")]
    tokens = isinstance(criterion, LinearAoRRLoss)
    if kinds and not (tokens and "SFTTrainer" in kinds):
        raise ValueError(
            f"trl is supported by SFTTrainer with LinearAoRRLoss, got {kinds[0]} with {type(criterion).__name__}; use "
            "these two"
        )
    if criterion.m == "auto" and trainer.args.remove_unused_columns:
        raise ValueError(
            "the key 'index' must reach the loss, got remove_unused_columns=True, which removes it; set "
            "remove_unused_columns=False in the trainer's arguments"
        )
    merged = [name for name in ("packing", "padding_free") if getattr(trainer.args, name, False)]
    if merged and criterion.m == "auto":
        raise ValueError(f"m='auto' remembers documents, got {merged[0]}=True, which joins them; set it to False")
    if merged and criterion.per == "sequence":
        raise ValueError(f"per='sequence' ranks documents, got {merged[0]}=True, which joins them; set it to False")


def _use_group(criterion: AoRRLoss | LinearAoRRLoss) -> None:
    """In a distributed run, give a loss without a group that of all processes; classes are ranked in one batch."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    one_batch = isinstance(criterion, AoRRLoss) and (criterion.per_class or with_class_weights(criterion.base))
    if distributed and criterion.group is None and not one_batch:
        criterion.group = torch.distributed.group.WORLD


class _IndexCollator:
    """A collator that adds the key "index", if all samples have it; the wrapped collator may not support this key."""

    def __init__(self, inner: Callable[[list[Any]], dict[str, Any]]) -> None:
        self.inner = inner

    def __call__(self, samples: list[Any]) -> dict[str, Any]:
        if not all(isinstance(sample, dict) and "index" in sample for sample in samples):
            return self.inner(samples)
        batch = self.inner([{key: value for key, value in sample.items() if key != "index"} for sample in samples])
        return {**batch, "index": torch.tensor([int(sample["index"]) for sample in samples])}


def _use_loss(trainer: Any, criterion: AoRRLoss | LinearAoRRLoss) -> None:
    """Make the trainer compute this loss; with tokens, evaluation does not change."""
    original, tokens = trainer.compute_loss, isinstance(criterion, LinearAoRRLoss)
    loss_of = _loss_of_tokens if tokens else _loss_of_classes
    options: dict[str, Any] = {}
    if tokens:
        options = {"output_hidden_states": True, "use_cache": False}
        if "logits_to_keep" in inspect.signature(trainer.model.forward).parameters:
            options["logits_to_keep"] = 1
    trainer.model_accepts_loss_kwargs = True  # so that the trainer counts the items of accumulated batches

    def compute_loss(
        model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        index = inputs.pop("index", None)
        if tokens and not model.training:
            return original(model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"}, **options)
        index = index if criterion.automatic and model.training else None
        criterion.train(model.training)
        value = loss_of(criterion, trainer.model, outputs, inputs["labels"], index, num_items_in_batch)
        if num_items_in_batch is not None and trainer.args.average_tokens_across_devices:
            value = value * trainer.accelerator.num_processes  # num_items_in_batch counts all processes
        return (value, outputs) if return_outputs else value

    trainer.compute_loss = compute_loss


def _loss_of_classes(
    criterion: Any, model: nn.Module, outputs: Any, labels: Tensor, index: Tensor | None, n_items: Any
) -> Tensor:
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    value: Tensor = criterion.to(logits.device)(logits, labels, *([] if index is None else [index]))
    # The trainer expects the share of this batch in the sum over the accumulated batches.
    return value if n_items is None else value * share_of_items(labels != -100, n_items, criterion.group)


def _loss_of_tokens(
    criterion: Any, model: Any, outputs: Any, labels: Tensor, index: Tensor | None, n_items: Any
) -> Tensor:
    hidden, head = outputs.hidden_states[-1], model.get_output_embeddings()
    bias = getattr(head, "bias", None)
    if not criterion._last:
        _check_head(hidden, head, outputs.logits, criterion.softcap)
    loss: Tensor = criterion(hidden[:, :-1], head.weight, labels[:, 1:], bias, index=index, n_items=n_items)
    return loss


def _check_head(hidden: Tensor, head: Any, logits: Tensor, softcap: float | None) -> None:
    """Raise an error if the logits of the last tokens are not the output of the last layer, up to about 5%."""
    with torch.no_grad():
        ours = F.linear(hidden[:, -1:], head.weight, getattr(head, "bias", None)).float()
        ours = ours if softcap is None else softcap * torch.tanh(ours / softcap)
        theirs = logits[:, -1:].float()
        if not torch.allclose(ours, theirs, rtol=0.05, atol=0.05 * float(theirs.abs().max()) + 1e-6):
            raise ValueError(
                "the logits must be those of the last layer at the last hidden states, got others: this model scales "
                "or caps them; pass softcap= to LinearAoRRLoss if it caps them"
            )
