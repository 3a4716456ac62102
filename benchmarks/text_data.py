"""Text at hand for benchmarks/torch_text.py: Python sources, C++ headers, corrupted documents, and instruction pairs.

Sources are those of the standard library and of packages beside PyTorch. An instruction pair is a function of them: its
signature and docstring are the prompt, the rest of its body is the answer.
"""

from __future__ import annotations

import ast
import glob
import multiprocessing
import os
import random
import sysconfig
import textwrap
import zlib
from typing import NamedTuple

import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WORDS = 256
PACKAGES = ("torch", "transformers", "jax", "sympy", "networkx", "numpy", "sklearn")
END = b"\x00"  # of an answer


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
    name, share = kind.split()
    hit = torch.rand(text.shape, device=DEVICE, generator=g) < float(share.rstrip("%")) / 100
    junk = torch.randint(0, WORDS, text.shape, device=DEVICE, generator=g).to(torch.uint8)
    if name == "swapped":
        flat = text.reshape(-1)
        junk = flat[torch.randint(0, len(flat), text.shape, device=DEVICE, generator=g)]
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


class Pairs(NamedTuple):
    """Prompts with answers as rows of bytes: which bytes are the answer, where it begins, and whether it is exchanged.

    `alone` has the same answers after a line break in the place of the prompt.
    """

    tokens: Tensor
    answer: Tensor
    begin: Tensor
    alone: Tensor
    wrong: Tensor

    def to(self, device: str) -> Pairs:
        return Pairs(*(part.to(device) for part in self))


def sides(files: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Files to pretrain on, to make pairs of, and to make validation pairs of: by a checksum of the name."""
    kinds: tuple[list[str], list[str], list[str]] = ([], [], [])
    for file in files:
        name = "/".join(file.split(os.sep)[-3:])
        kinds[(0, 0, 0, 1, 1, 1, 1, 1, 1, 2)[zlib.crc32(name.encode()) % 10]].append(file)
    return kinds


def functions(files: list[str], longest: int) -> list[tuple[bytes, bytes]]:
    """(prompt, answer) of every function with a docstring, up to so many bytes together, each once."""
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 8)) as pool:
        found = [pair for some in pool.imap(_functions_of, files, 50) for pair in some]
    return [pair for pair in dict.fromkeys(found) if len(pair[0]) + len(pair[1]) <= longest]


def _functions_of(file: str) -> list[tuple[bytes, bytes]]:
    try:
        with open(file, encoding="utf-8") as handle:
            source = handle.read()
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines, pairs = source.splitlines(keepends=True), []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and len(node.body) > 1 and ast.get_docstring(node, clean=False):
            middle = node.body[0].end_lineno
            text = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno])).encode()
            head = len(b"".join(text.splitlines(keepends=True)[: middle - node.lineno + 1]))
            pairs.append((text[:head], text[head:] + END))
    return pairs


def tabled(pairs: list[tuple[bytes, bytes]], length: int, share: float, seed: int) -> Pairs:
    """Rows of prompts and answers, where this share of the answers is exchanged among each other."""
    rng = random.Random(seed)
    wrong = [rng.random() < share for _ in pairs]
    bad = [i for i, other in enumerate(wrong) if other]
    rng.shuffle(bad)
    answers = [answer for _, answer in pairs]
    for i, j in zip(bad, bad[1:] + bad[:1], strict=True):
        answers[i] = pairs[j][1]
    shape = len(pairs), length
    tokens, alone = torch.zeros(shape, dtype=torch.uint8), torch.zeros(shape, dtype=torch.uint8)
    answer, begin = torch.zeros(shape, dtype=torch.bool), torch.zeros(len(pairs), dtype=torch.long)
    for i, ((prompt, _), text) in enumerate(zip(pairs, answers, strict=True)):
        row = (prompt + text)[:length]
        tokens[i, : len(row)] = torch.frombuffer(bytearray(row), dtype=torch.uint8)
        bare = (b"\n" + text)[:length]
        alone[i, : len(bare)] = torch.frombuffer(bytearray(bare), dtype=torch.uint8)
        answer[i, len(prompt) : len(row)], begin[i] = True, len(prompt)
    return Pairs(tokens, answer, begin, alone, torch.tensor(wrong))
