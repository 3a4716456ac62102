"""Fine-tuning on instruction pairs of which a fifth of the answers is exchanged; loss of right answers, nats per byte.

    python benchmarks/torch_finetune.py [--seeds 6 7 8] [--record] [--limit SECONDS]

A byte-level GPT (6 layers, 384 wide, 384 bytes of context) is pretrained on Python sources by the mean loss, 1,500
steps, then fine-tuned on functions of other files: signature and docstring are the prompt, the body is the answer, and
only bytes of the answer count. Three passes, 64 pairs a batch. "exchanged": a fifth of the answers have changed places.
"own" is the share of the validation answers that are more probable after their own prompt than after another's.
"oracle" leaves these out. "auto by prompt" compares each answer's loss to that of the same model without the prompt
(key="reference"). Validation pairs come from files that were in neither. One process per seed; a seed draws the
exchange, the order of the pairs and the first weights. Seeds from 100 on were used for development.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pickle
import tempfile
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import rankrange.torch as rrt
import record
from text_data import DEVICE, Pairs, documents, functions, joined, python_files, sides, tabled
from torch_text import GPT, METHODS, optimizer_of, set_rate

LONGEST, BATCH, RATE, EPOCHS = 384, 64, 3e-4, 3
BYTES = 30_000_000
METHODS = {**METHODS, "auto by prompt": {"m": "auto", "per": "sequence", "key": "reference"}}
PLAN = [
    *(("exchanged", method) for method in ("mean", "oracle", "auto by prompt")), ("clean", "mean"),
    ("exchanged", "sequences by loss m=.2"), ("clean", "auto by prompt"), ("exchanged", "loss m=.1"),
    *((kind, method) for kind in ("exchanged", "clean") for method in ("auto by sequence", "auto")),
]  # fmt: skip


class FineTuner:
    """One pretrained model, fine-tuned again and again from the same weights."""

    def __init__(self, data: dict[str, Any], seed: int, given: argparse.Namespace) -> None:
        self.data, self.seed, self.given = data, seed, given
        torch.manual_seed(seed)
        self.model = GPT(given.width, given.layers, context=LONGEST).to(DEVICE)
        self.hidden = torch.compile(self.model) if DEVICE == "cuda" else self.model
        self.model.reset()
        self.validation = tabled(data["validation"], LONGEST, 0.0, 0).to(DEVICE)
        of = data["validation"]
        other = [(of[i - 1][0], answer) for i, (_, answer) in enumerate(of)]
        self.other = tabled(other, LONGEST, 0.0, 0).to(DEVICE)
        self.whole = torch.tensor([len(prompt) + len(answer) <= LONGEST for prompt, answer in other], device=DEVICE)
        self._pretrain()
        self.start = {name: value.clone() for name, value in self.model.state_dict().items()}

    def _pretrain(self) -> None:
        text, optimizer = documents(self.data["text"], LONGEST), optimizer_of(self.model)
        order = torch.randperm(len(text), device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(self.seed))
        criterion = rrt.LinearAoRRLoss(0.0).to(DEVICE)
        for step in range(self.given.steps):
            set_rate(optimizer, 1e-3, step, self.given.steps)
            tokens = text[order[(torch.arange(BATCH, device=DEVICE) + step * BATCH) % len(order)]].long()
            self._step(criterion, optimizer, tokens, tokens[:, 1:])

    def _step(
        self, criterion: Any, optimizer: Any, tokens: Tensor, target: Tensor, reference: Tensor | None = None
    ) -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = criterion(self.hidden(tokens)[:, :-1], self.model.head.weight, target, reference=reference)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def losses(self, tokens: Tensor) -> Tensor:
        """The loss of every byte but the first."""
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = self.model.head(self.hidden(tokens)[:, :-1])
        return F.cross_entropy(logits.float().transpose(1, 2), tokens[:, 1:], reduction="none")

    def without_prompt(self, pairs: Pairs, rows: Tensor) -> Tensor:
        """The losses of the same answers without their prompts, at the places that they have after them."""
        bare = self.losses(pairs.alone[rows].long())
        place = torch.arange(LONGEST - 1, device=DEVICE) - (pairs.begin[rows, None] - 1)
        return bare.gather(1, place.clamp(0, LONGEST - 2))

    def run(self, kind: str, method: str) -> dict[str, Any]:
        began, seed = time.perf_counter(), self.seed
        share = 0.2 if kind == "exchanged" else 0.0
        pairs = tabled(self.data["pairs"], LONGEST, share, seed).to(DEVICE)
        torch.manual_seed(seed)
        self.model.load_state_dict(self.start)
        steps = EPOCHS * len(pairs.tokens) // BATCH
        options = dict(METHODS[method])
        criterion = rrt.LinearAoRRLoss(options.pop("m", 0.0), total_batches=steps, **options).to(DEVICE)
        optimizer = optimizer_of(self.model)
        order = torch.randperm(len(pairs.tokens), device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed))
        found, trace = torch.zeros(4, device=DEVICE), []
        for step in range(steps):
            set_rate(optimizer, RATE, step, steps)
            rows = order[(torch.arange(BATCH, device=DEVICE) + step * BATCH) % len(order)]
            tokens, wrong = pairs.tokens[rows].long(), pairs.wrong[rows]
            target = torch.where(pairs.answer[rows][:, 1:], tokens[:, 1:], -100)
            if method == "oracle":
                target = torch.where(wrong[:, None], -100, target)
            reference = self.without_prompt(pairs, rows) if method == "auto by prompt" else None
            self._step(criterion, optimizer, tokens, target, reference)
            if criterion.automatic and step in (30, 60, 120, 240, 480):
                trace.append(f"{float(criterion.share):.4f}")
            if step >= steps * 2 // 3:
                counted = target != -100
                out = ((criterion.last_weights < 0.5) & counted).sum(1) > 0.5 * counted.sum(1)
                found += torch.stack([out.sum(), (out & wrong).sum(), wrong.sum(), out.new_ones(()).sum() * len(out)])
        dropped, right, wrong_, all_ = found.tolist()
        nats, own = self.evaluate()
        return {
            "kind": kind, "method": method, "seed": seed, "pairs": len(pairs.tokens), "nats": nats, "own": own,
            "shares": " ".join(trace), "share": round(float(criterion.share), 4) if criterion.automatic else "",
            "dropped": round(dropped / all_, 4), "precision": round(right / max(dropped, 1), 3),
            "recall": round(right / max(wrong_, 1), 3), "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip

    def evaluate(self) -> tuple[float, float]:
        """Mean loss of the validation answers per byte; share that is likelier after its own prompt than another's."""
        own, other = self.answers(self.validation), self.answers(self.other)
        n_bytes = self.validation.answer[: len(own), 1:].sum()
        whole = self.whole[: len(own)]
        return round(float(own.sum() / n_bytes), 4), round(float((own < other)[whole].float().mean()), 4)

    @torch.no_grad()
    def answers(self, pairs: Pairs) -> Tensor:
        """The loss of each answer, summed over its bytes; whole batches only."""
        found = []
        for start in range(0, len(pairs.tokens) - BATCH + 1, BATCH):
            some = slice(start, start + BATCH)
            found.append(torch.where(pairs.answer[some, 1:], self.losses(pairs.tokens[some].long()), 0.0).sum(1))
        return torch.cat(found)


def work(path: str, seed: int, results: Any, until: float, given: argparse.Namespace) -> None:
    try:
        with open(path, "rb") as handle:
            data = pickle.load(handle)  # written by this program a moment ago
        tuner = FineTuner(data, seed, given)
        for kind, method in PLAN[: given.runs]:
            if time.time() < until:
                results.put(tuner.run(kind, method))
    finally:  # the parent waits for one from each process
        results.put(None)


def prepared(given: argparse.Namespace) -> dict[str, Any]:
    """Text to pretrain on, pairs, and validation pairs, of different files."""
    pretrain, tune, held_out = sides(python_files()[: given.files])
    return {
        "text": joined(pretrain, BYTES)[:BYTES],
        "pairs": functions(tune, LONGEST)[: given.pairs],
        "validation": functions(held_out, LONGEST)[:2000],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[6, 7, 8])
    parser.add_argument("--steps", type=int, default=1500, help="of pretraining")
    parser.add_argument("--runs", type=int, default=len(PLAN), help="only the first runs of the plan")
    parser.add_argument("--pairs", type=int, default=8000, help="pairs at most")
    parser.add_argument("--files", type=int, default=20_000, help="source files at most")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no run is started")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", help="write rows to this JSON file as they come")
    given = parser.parse_args()
    until, context = time.time() + given.limit, multiprocessing.get_context("spawn")
    results, rows = context.Queue(), []
    with tempfile.NamedTemporaryFile(suffix=".pickle") as shared:
        pickle.dump(prepared(given), shared)
        shared.flush()
        workers = [context.Process(target=work, args=(shared.name, s, results, until, given)) for s in given.seeds]
        for worker in workers:
            worker.start()
        running = len(workers)
        while running:
            row = results.get()
            if row is None:
                running -= 1
                continue
            rows.append(row)
            print(" ".join(f"{value!s:>10s}" for value in row.values()), flush=True)
            if given.out:
                with open(given.out, "w", encoding="utf-8") as handle:
                    json.dump(rows, handle)
        for worker in workers:
            worker.join()
    if given.record:
        device = torch.cuda.get_device_name() if DEVICE == "cuda" else None
        print(record.append("torch_finetune", rows, device))


if __name__ == "__main__":
    main()
