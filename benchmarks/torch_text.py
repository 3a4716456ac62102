"""A small GPT on Python sources of which a part is corrupted; loss on clean text, in nats per byte.

A byte-level GPT (6 layers, 384 wide, 256 bytes of context, 96 sequences a batch, 800 steps) on the standard library
and packages beside PyTorch, 30 MB. A sequence is a document. What is corrupted: nothing; 3% or 10% of the bytes
replaced by random ones ("random"); a fifth of the documents with their bytes in random order ("shuffled"), replaced
by C++ headers, or by a few of their bytes again and again ("repeated"). "oracle" leaves out exactly what was corrupted.
m="auto" is given nothing.
"""

from __future__ import annotations

import glob
import math
import os
import random
import sysconfig
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rankrange.torch as rrt

from .harness import Row, benchmark

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORDS = 256
PACKAGES = ("torch", "transformers", "jax", "sympy", "networkx", "numpy", "sklearn")


def python_files() -> list[str]:
    """The standard library, then packages in a fixed random order."""
    paths = sysconfig.get_paths()
    files = sorted(glob.glob(os.path.join(paths["stdlib"], "**", "*.py"), recursive=True))
    files = [file for file in files if "-packages" not in file]
    others = [
        file
        for package in PACKAGES
        for file in sorted(glob.glob(os.path.join(paths["purelib"], package, "**", "*.py"), recursive=True))
    ]
    random.Random(0).shuffle(others)
    return files + others


def joined(files: list[str], n_bytes: int, seed: int = 1) -> Tensor:
    """The first files, to some more than n_bytes, in random order, as one row of bytes."""
    texts: list[bytes] = []
    for file in files:
        if len(texts) % 50 == 0 and sum(map(len, texts)) > n_bytes:
            break
        with open(file, "rb") as handle:
            texts.append(handle.read())
    random.Random(seed).shuffle(texts)
    return torch.frombuffer(bytearray(b"".join(texts)), dtype=torch.uint8)


def documents(data: Tensor, length: int) -> Tensor:
    """The bytes cut into rows of this length."""
    return data[: len(data) // length * length].view(-1, length).to(DEVICE)


def headers(length: int, n_bytes: int) -> Tensor:
    """C++ that PyTorch ships, in rows."""
    files = glob.glob(os.path.join(os.path.dirname(torch.__file__), "include", "**", "*.h"), recursive=True)
    random.Random(0).shuffle(sorted_files := sorted(files))
    return documents(joined(sorted_files, n_bytes), length)


def corrupt(text: Tensor, kind: str, seed: int) -> tuple[Tensor, Tensor]:
    """(documents, which bytes were corrupted)."""
    g = torch.Generator(DEVICE).manual_seed(seed)
    hit = torch.zeros_like(text, dtype=torch.bool)
    if kind == "clean":
        return text, hit
    if kind in ("shuffled", "C++", "repeated"):
        bad = torch.rand(len(text), device=DEVICE, generator=g) < 0.2
        junk = {"shuffled": _shuffled, "C++": _foreign, "repeated": _repeated}[kind](text, g)
        return torch.where(bad[:, None], junk, text), bad[:, None].expand_as(text)
    share = float(kind.removeprefix("random ").rstrip("%")) / 100
    hit = torch.rand(text.shape, device=DEVICE, generator=g) < share
    junk = torch.randint(0, WORDS, text.shape, device=DEVICE, generator=g).to(torch.uint8)
    return torch.where(hit, junk, text), hit


def _shuffled(text: Tensor, g: torch.Generator) -> Tensor:
    return text.gather(1, torch.rand(text.shape, device=DEVICE, generator=g).argsort(1))


def _foreign(text: Tensor, g: torch.Generator) -> Tensor:
    other = headers(text.shape[1], text.numel() // 5)
    return other[torch.randint(0, len(other), (len(text),), device=DEVICE, generator=g)]


def _repeated(text: Tensor, g: torch.Generator) -> Tensor:
    """Documents of 8 to 32 bytes of the text, again and again."""
    n, length = text.shape
    period = torch.randint(8, 33, (n, 1), device=DEVICE, generator=g)
    return text.gather(1, torch.arange(length, device=DEVICE) % period)


CONTEXT, BATCH = 256, 96
METHODS: dict[str, dict[str, Any]] = {
    "mean": {},
    "oracle": {},
    "auto": {"m": "auto"},
    "auto; no warm-up": {"m": "auto", "warmup": 0},
    "auto by sequence": {"m": "auto", "per": "sequence"},
    "loss m=.1": {"m": 0.1, "key": "loss", "warmup": 0.1},
    "sequences by loss m=.2": {"m": 0.2, "per": "sequence", "warmup": 0.1},
}
PLANS = {
    "evaluation": [
        *((kind, method) for kind in ("clean", "random 3%", "random 10%", "shuffled") for method in ("mean", "auto")),
        *((kind, "oracle") for kind in ("random 3%", "random 10%", "shuffled")),
        ("clean", "auto by sequence"), ("shuffled", "auto by sequence"), ("random 10%", "loss m=.1"),
    ],
    "tiny": [("random 10%", "auto")],
    "more": [
        ("clean", "loss m=.1"), ("shuffled", "sequences by loss m=.2"), ("random 10%", "auto by sequence"),
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

    def __init__(self, steps: int, n_bytes: int, width: int) -> None:
        validation = n_bytes // 15
        data = joined(python_files(), n_bytes + validation)
        self.validation = documents(data[:validation], CONTEXT)
        self.train = documents(data[validation : n_bytes + validation], CONTEXT)
        self.model = GPT(width).to(DEVICE)
        self.hidden = torch.compile(self.model) if DEVICE == "cuda" else self.model
        self.steps = steps

    def run(self, kind: str, method: str, seed: int) -> Row:
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


@benchmark(
    lambda rows: rows.groupby(["kind", "method"], sort=False)["nats"].agg(["mean", "sem", "count"]),
    seeds=1,
    plan="tiny",
    steps=2,
    n_bytes=750_000,
    width=24,
)
def torch_text(
    seed: int = 3,
    seeds: int = 3,
    plan: str = "evaluation",
    steps: int = 800,
    n_bytes: int = 30_000_000,
    width: int = 384,
) -> Iterator[Row]:
    """Loss of a small GPT on clean text after training on corrupted text; plans: evaluation, more, documents.

    Each seed draws the corruption, the order of the documents and the first weights. Seeds from 100 on were used for
    development; 0 to 2 showed that the first batches need a warm-up; 3 to 8 are for evaluation.
    """
    trainer = Trainer(steps, n_bytes, width)
    for kind, method in PLANS[plan]:
        for draw in range(seed, seed + seeds):
            yield trainer.run(kind, method, draw)
