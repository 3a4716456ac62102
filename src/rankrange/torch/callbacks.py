"""Callbacks for the Trainer of Hugging Face and for Lightning, which log what a robust loss does.

Both log through the trainer's own logger, so that TensorBoard, MLflow and Weights & Biases show the same figures: the
cut, the kept share, the estimated shares of wrong labels, and the number of suspects. The trainers are imported when a
callback is made, not before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .modules import AoRRLoss
from .token_module import LinearAoRRLoss

__all__ = ["hugging_face_callback", "lightning_callback", "loss_figures"]


def loss_figures(criterion: Any, *, suspects: bool = False) -> dict[str, float]:
    """What a loss did in the last batch, as numbers for a logger.

    Parameters
    ----------
    criterion : AoRRLoss or LinearAoRRLoss
        The loss; without a call so far there is nothing to report.
    suspects : bool, default=False
        Whether to count the suspects too, which looks at all remembered samples.

    Returns
    -------
    dict of str to float
        "kept" (share of the last batch); with a given m "cut" (losses above it were dropped; left out if infinite);
        with m="auto" "share" (estimated share of wrong labels, the mean over classes), "share_0" and so on (of each
        class), and "suspects".

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from rankrange.torch import AoRRLoss
    >>> from rankrange.torch.callbacks import loss_figures
    >>> criterion = AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m=1)
    >>> _ = criterion(torch.tensor([[3.0, 0.0], [0.0, 3.0], [0.0, 3.0], [3.0, 0.0]]), torch.tensor([0, 1, 0, 0]))
    >>> loss_figures(criterion)["kept"]
    0.75
    """
    last = criterion._last
    if not last:
        return {}
    with torch.no_grad():
        found = {"kept": float(criterion.last_weights.float().mean())}
        if "cut" in last:
            found["cut"] = float(criterion.lam_hat)
        if criterion.m == "auto":
            shares = _shares(criterion)
            found["share"] = float(shares.mean())
            if len(shares) > 1:
                found.update({f"share_{i}": value for i, value in enumerate(shares.tolist())})
            if suspects:
                found["suspects"] = float(len(criterion.suspects()))
    return {name: value for name, value in found.items() if value - value == 0.0}  # loggers take finite numbers


def _shares(criterion: Any) -> Tensor:
    shares = criterion.shares if isinstance(criterion, AoRRLoss) else criterion.share
    return shares.detach().float().reshape(-1).cpu()


def find_criterion(module: nn.Module) -> nn.Module:
    """The one robust loss among the submodules of a module."""
    found = [part for part in module.modules() if isinstance(part, AoRRLoss | LinearAoRRLoss)]
    if len(found) != 1:
        raise ValueError(
            f"a module with one AoRRLoss or LinearAoRRLoss is followed by itself, got {len(found)} in "
            f"{type(module).__name__}; pass criterion=..."
        )
    return found[0]


def hugging_face_callback(criterion: AoRRLoss, *, prefix: str = "rankrange/") -> Any:
    """A callback with which `transformers.Trainer` trains with a robust loss and logs what it does.

    Parameters
    ----------
    criterion : AoRRLoss
        The loss of logits and labels.
    prefix : str, default="rankrange/"
        What the names of the logged figures start with.

    Returns
    -------
    transformers.TrainerCallback
        Its method `attach(trainer)` makes the trainer use the loss, passes the key "index" of the batches (from
        `rankrange.torch.WithIndex`) to it and not to the model, and logs with the trainer's own logger at every logging
        step; suspects are counted at the end of an epoch. Needs `remove_unused_columns=False`.

    Examples
    --------
    >>> import transformers  # doctest: +SKIP
    >>> criterion = AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto")  # doctest: +SKIP
    >>> trainer = transformers.Trainer(model, arguments, train_dataset=WithIndex(dataset))  # doctest: +SKIP
    >>> hugging_face_callback(criterion).attach(trainer)  # doctest: +SKIP
    """
    import transformers

    class RankedRangeCallback(transformers.TrainerCallback):
        def __init__(self) -> None:
            self.criterion, self.trainer = criterion, None
            self.index: Tensor | None = None

        def attach(self, trainer: Any) -> Any:
            """Make the trainer use the loss, and follow it; returns the callback."""
            if trainer.args.remove_unused_columns:
                raise ValueError(
                    "the key 'index' must reach the loss, got remove_unused_columns=True, which removes it; set "
                    "remove_unused_columns=False in the trainer's arguments"
                )
            self.trainer = trainer
            trainer.compute_loss_func = self.loss
            trainer.model.register_forward_pre_hook(self._take_index, with_kwargs=True)
            trainer.add_callback(self)
            return self

        def _take_index(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            """The index goes to the loss, because the model does not know it."""
            self.index = kwargs.pop("index", None)
            return args, kwargs

        def loss(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
            """What `compute_loss_func` of the trainer calls."""
            logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
            self.criterion.train(torch.is_grad_enabled())
            self.criterion.to(logits.device)
            index = self.index if self.criterion.auto is not None and torch.is_grad_enabled() else None
            more = [] if index is None else [index.to(logits.device)]
            return self.criterion(logits, labels.to(logits.device), *more)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if control.should_log:
                self._log(suspects=False)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._log(suspects=True)

        def _log(self, suspects: bool) -> None:
            figures = loss_figures(self.criterion, suspects=suspects)
            if figures and self.trainer is not None:
                self.trainer.log({prefix + name: value for name, value in figures.items()})

    return RankedRangeCallback()


def lightning_callback(criterion: nn.Module | None = None, *, prefix: str = "rankrange/") -> Any:
    """A Lightning callback that logs what a robust loss does.

    Parameters
    ----------
    criterion : AoRRLoss or LinearAoRRLoss, optional
        The loss; by default the one among the submodules of the Lightning module.
    prefix : str, default="rankrange/"
        What the names of the logged figures start with.

    Returns
    -------
    lightning.Callback
        It logs with the module's own `log_dict` every `log_every_n_steps` steps, and counts suspects at the end of an
        epoch. The module passes the index itself: `self.criterion(self.model(x), y, index)`.

    Examples
    --------
    >>> import lightning  # doctest: +SKIP
    >>> lightning.Trainer(callbacks=[lightning_callback()])  # doctest: +SKIP
    """
    import lightning

    class RankedRangeCallback(lightning.Callback):
        def __init__(self) -> None:
            self.criterion = criterion

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            if self.criterion is None:
                self.criterion = find_criterion(pl_module)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if (trainer.global_step + 1) % max(1, trainer.log_every_n_steps) == 0:
                self._log(pl_module, suspects=False)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._log(pl_module, suspects=True)

        def _log(self, pl_module: Any, suspects: bool) -> None:
            figures = loss_figures(self.criterion, suspects=suspects)
            ending = "_epoch" if suspects else ""
            pl_module.log_dict({f"{prefix}{name}{ending}": value for name, value in figures.items()})

    return RankedRangeCallback()
