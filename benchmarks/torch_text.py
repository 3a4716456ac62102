"""Does it help? A small GPT on Python sources of which a part is corrupted; loss on clean text, in nats per byte.

    python benchmarks/torch_text.py [--seeds 3 4 5] [--plan evaluation] [--processes 3] [--record] [--limit SECONDS]
    python benchmarks/torch_text.py --seeds 6 7 8 --plan documents

A byte-level GPT (6 layers, 384 wide, 256 bytes of context, 96 sequences a batch, 800 steps) on the standard library
and packages beside PyTorch, 30 MB. A sequence is a document. What is corrupted: nothing; 3% or 10% of the bytes
replaced by random ones ("random"), or by bytes drawn from the text ("swapped"); a fifth of the documents with their
bytes in random order ("shuffled"), replaced by C++ headers, or by a few of their bytes again and again ("repeated").
"oracle" leaves out exactly what was corrupted. m="auto" is given nothing. Each seed draws the corruption, the order of
the documents and the first weights. Seeds from 100 on were used for development; 0 to 2 showed that the first batches
need a warm-up; 3 to 8 are for evaluation.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rankrange.torch as rrt
import record
from text_data import DEVICE, WORDS, corrupt, documents, joined, python_files

CONTEXT, BATCH = 256, 96
BYTES, VALIDATION = 30_000_000, 2_000_000
METHODS: dict[str, dict[str, Any]] = {
    "mean": {},
    "oracle": {},
    "auto": {"m": "auto"},
    "auto; no warm-up": {"m": "auto", "warmup": 0},
    "auto by sequence": {"m": "auto", "per": "sequence"},
    "loss m=.1": {"m": 0.1, "key": "loss", "warmup": 0.1},
    "excess m=.1": {"m": 0.1, "key": "excess", "warmup": 0.1},
    "sequences by loss m=.2": {"m": 0.2, "per": "sequence", "warmup": 0.1},
}
PLANS = {
    "development": [
        *((kind, method) for kind in ("random 10%", "swapped 10%") for method in ("auto", "mean", "oracle")),
        *(("clean", method) for method in ("auto", "mean", "auto by sequence")),
        *(("shuffled", method) for method in ("mean", "oracle", "auto by sequence", "sequences by loss m=.2")),
        ("random 3%", "auto"), ("random 3%", "mean"), ("random 3%", "oracle"),
    ],
    "evaluation": [
        *((kind, method) for kind in ("clean", "random 3%", "random 10%", "shuffled") for method in ("mean", "auto")),
        *((kind, "oracle") for kind in ("random 3%", "random 10%", "shuffled")),
        ("clean", "auto by sequence"), ("shuffled", "auto by sequence"), ("random 10%", "loss m=.1"),
    ],
    "more": [
        ("clean", "loss m=.1"), ("shuffled", "sequences by loss m=.2"), ("swapped 10%", "mean"),
        ("swapped 10%", "auto"), ("swapped 10%", "oracle"), ("random 10%", "auto by sequence"),
    ],
    "documents": [
        *(("clean", method) for method in ("mean", "auto by sequence")),
        *((kind, method) for method in ("mean", "oracle", "auto by sequence", "sequences by loss m=.2", "auto")
          for kind in ("C++", "repeated")),
    ],
}  # fmt: skip


class Block(nn.Module):
    """Attention and a layer of four times the width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.qkv(self.first(x)).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """Hidden states of a byte-level GPT; `head` is its last layer."""

    def __init__(self, width: int = 384, layers: int = 6, heads: int = 6, context: int = CONTEXT) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, width), nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def reset(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        nn.init.normal_(self.place, std=0.02)
        for block in self.blocks:
            block.out.weight.data /= (2 * len(self.blocks)) ** 0.5
            block.down.weight.data /= (2 * len(self.blocks)) ** 0.5

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    fused = {"fused": True} if DEVICE == "cuda" else {}
    return torch.optim.AdamW(model.parameters(), 1e-3, betas=(0.9, 0.95), weight_decay=0.1, **fused)


def set_rate(optimizer: torch.optim.Optimizer, highest: float, step: int, steps: int) -> None:
    """50 steps upwards, then half a cosine down to a tenth."""
    rate = min(1.0, (step + 1) / 50) * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))
    for parameters in optimizer.param_groups:
        parameters["lr"] = highest * rate


class Trainer:
    """One compiled model, trained again and again from new weights."""

    def __init__(self, steps: int, pictures: str | None = None) -> None:
        data = joined(python_files(), BYTES + VALIDATION)
        self.validation = documents(data[:VALIDATION], CONTEXT)
        self.train = documents(data[VALIDATION : BYTES + VALIDATION], CONTEXT)
        self.pictures = pictures
        self.model = GPT().to(DEVICE)
        self.hidden = torch.compile(self.model) if DEVICE == "cuda" else self.model
        self.steps = steps

    def run(self, kind: str, method: str, seed: int) -> dict[str, Any]:
        began = time.perf_counter()
        text, hit = corrupt(self.train, kind, seed)
        torch.manual_seed(seed)
        self.model.reset()
        options = dict(METHODS[method])
        criterion = rrt.LinearAoRRLoss(options.pop("m", 0.0), total_batches=self.steps, **options).to(DEVICE)
        optimizer = optimizer_of(self.model)
        order = torch.randperm(len(text), device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(seed + 7))
        found, trace = torch.zeros(4, device=DEVICE), []
        for step in range(self.steps):
            set_rate(optimizer, 1e-3, step, self.steps)
            rows = order[(torch.arange(BATCH, device=DEVICE) + step * BATCH) % len(order)]
            tokens, wrong = text[rows].long(), hit[rows][:, 1:]
            target = tokens[:, 1:]
            if method == "oracle":
                target = torch.where(wrong, -100, target)
            with torch.autocast(DEVICE, torch.bfloat16):
                hidden = self.hidden(tokens)[:, :-1]
                loss = criterion(hidden, self.model.head.weight, target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if criterion.automatic and step in (30, 60, 120, 240, 480):
                trace.append(f"{float(criterion.share):.4f}")
            if step >= self.steps * 3 // 4:
                out = criterion.last_weights < 0.5
                found += torch.stack(
                    [out.sum(), (out & wrong).sum(), wrong.sum(), out.new_ones(()).sum() * out.numel()]
                )
        if self.pictures and method.startswith("auto") and kind != "clean":
            name = f"{kind} {method} {seed}".replace("%", "").replace(" ", "_")
            rows = order[-24:]
            with open(f"{self.pictures}/{name}.json", "w", encoding="utf-8") as handle:
                json.dump(self.picture(criterion, text[rows], hit[rows]), handle)
        dropped, right, wrong_, all_ = found.tolist()
        return {
            "kind": kind, "method": method, "seed": seed, "steps": self.steps, "nats": round(self.evaluate(), 4),
            "shares": " ".join(trace), "share": round(float(criterion.share), 4) if criterion.automatic else "",
            "dropped": round(dropped / all_, 4), "precision": round(right / max(dropped, 1), 3),
            "recall": round(right / max(wrong_, 1), 3), "seconds": round(time.perf_counter() - began, 1),
        }  # fmt: skip

    @torch.no_grad()
    def evaluate(self) -> float:
        losses = []
        for start in range(0, len(self.validation) - BATCH + 1, BATCH):
            tokens = self.validation[start : start + BATCH].long()
            with torch.autocast(DEVICE, torch.bfloat16):
                logits = self.model.head(self.hidden(tokens)[:, :-1])
            losses.append(F.cross_entropy(logits.float().reshape(-1, WORDS), tokens[:, 1:].reshape(-1)))
        return float(torch.stack(losses).double().mean())

    @torch.no_grad()
    def picture(self, criterion: rrt.LinearAoRRLoss, text: Tensor, wrong: Tensor) -> dict[str, Any]:
        """Some documents with the weight of every byte and whether it was corrupted, for a drawing."""
        criterion.eval()
        with torch.autocast(DEVICE, torch.bfloat16):
            criterion(self.hidden(text.long())[:, :-1], self.model.head.weight, text[:, 1:].long())
        return {
            "bytes": text.tolist(), "weights": criterion.last_weights.cpu().tolist(), "wrong": wrong[:, 1:].tolist()
        }  # fmt: skip


def work(tasks: Any, results: Any, steps: int, until: float, pictures: str | None) -> None:
    try:
        trainer = Trainer(steps, pictures)
        while time.time() < until:
            try:
                task = tasks.get_nowait()
            except Exception:  # the queue is empty
                break
            results.put(trainer.run(*task))
    finally:  # the parent waits for one from each process
        results.put(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--plan", choices=sorted(PLANS), default="evaluation")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which no run is started")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", help="write rows to this JSON file as they come")
    parser.add_argument("--pictures", help="write some documents with the weights of their bytes into this folder")
    arguments = parser.parse_args()
    until = time.time() + arguments.limit
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    for kind, method in PLANS[arguments.plan]:
        for seed in arguments.seeds:
            tasks.put((kind, method, seed))
    workers = [
        context.Process(target=work, args=(tasks, results, arguments.steps, until, arguments.pictures))
        for _ in range(arguments.processes)
    ]
    for worker in workers:
        worker.start()
    rows, running = [], len(workers)
    while running:
        row = results.get()
        if row is None:
            running -= 1
            continue
        rows.append(row)
        print(" ".join(f"{value!s:>10s}" for value in row.values()), flush=True)
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as handle:
                json.dump(rows, handle)
    for worker in workers:
        worker.join()
    if arguments.record:
        device = torch.cuda.get_device_name() if DEVICE == "cuda" else None
        print(record.append("torch_text", rows, device))


if __name__ == "__main__":
    main()
