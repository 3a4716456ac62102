"""Checks of the kernels for token losses against the definition in float64; kernel_checks.py runs them."""

import itertools
import os

import torch
import torch.nn.functional as F

import rankrange.torch as rrt
from rankrange.torch import token_passes

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SHAPES = (
    [(13, 5, 17), (4, 8, 70)]
    if INTERPRETED
    else [(13, 5, 17), (257, 64, 5003), (2048, 512, 50257), (1500, 4096, 128256)]
)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 6e-3}
LIMIT = {torch.float32: 2e-3 if DEVICE == "cuda" else 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def inputs(tokens, features, words, dtype, bias):
    g = torch.Generator(DEVICE).manual_seed(words)
    hidden = torch.randn(tokens, features, device=DEVICE, generator=g).to(dtype).requires_grad_()
    weight = (torch.randn(words, features, device=DEVICE, generator=g) * 3 / features**0.5).to(dtype).requires_grad_()
    target = torch.randint(0, words, (tokens,), device=DEVICE, generator=g)
    target[::7] = -100
    b = torch.randn(words, device=DEVICE, generator=g).to(dtype).requires_grad_() if bias else None
    return hidden, weight, target, b


def check_token_scores():
    """What one kernel reads off the logits is what eager PyTorch finds in float64, and slopes are its derivatives."""
    for (tokens, features, words), dtype, cap in itertools.product(SHAPES, TOLERANCE, (None, 5.0)):
        hidden, weight, target, bias = inputs(tokens, features, words, dtype, True)
        target = target.clamp(min=0)
        logits = (hidden @ weight.t() + bias).detach()
        if words < 100:
            logits[1, 2], logits[2, 3] = -torch.inf, 3e4
        head = token_passes.Head(weight, bias, cap, 0.1)
        found = token_passes.score(logits, target, head)
        exact = token_passes.score(logits.double(), target, head)
        for name, mine, true in zip(found._fields, found, exact, strict=True):
            torch.testing.assert_close(mine.double(), true, rtol=1e-4, atol=2e-4, msg=lambda m, n=name: f"{n}: {m}")
        row_weight = torch.rand(tokens, device=DEVICE)
        row_weight[0] = 0.0
        z = logits.double().clamp(-1e30).requires_grad_()
        capped = z if cap is None else cap * torch.tanh(z / cap)
        loss = F.cross_entropy(capped, target, reduction="none", label_smoothing=0.1)
        (true,) = torch.autograd.grad((row_weight.double() * loss).nan_to_num().sum(), z)
        mine = token_passes.slopes_(logits.clone(), target, found.lse, row_weight, head)
        torch.testing.assert_close(mine.double(), true, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        half = words // 2
        part = token_passes.slopes_(logits[:, half:].clone(), target, found.lse, row_weight, head, half)
        assert torch.equal(part, mine[:, half:])


def check_token_losses():
    """Loss and gradients of the kept tokens against float64 on the same tokens, in one pass and in two."""
    for number, ((tokens, features, words), dtype) in enumerate(itertools.product(SHAPES, TOLERANCE)):
        hidden, weight, target, bias = inputs(tokens, features, words, dtype, tokens % 2)
        ranges = [
            (0.1, 0.7, max(tokens // 5, 1)),
            (0, 1.0, max(tokens // 3, 1)),
            (0, 0.6, None),
            (0.1, 1.0, None),
            (0, 1.0, None),
        ]
        for m, k, chunk in ranges[number % 2 :: 2] if INTERPRETED else ranges:  # each dtype meets all, over the shapes
            criterion = rrt.LinearAoRRLoss(m, k, chunk=chunk)
            value = criterion(hidden, weight, target, bias)
            leaves = [x for x in (hidden, weight, bias) if x is not None]
            found = torch.autograd.grad(1.5 * value, leaves)
            again = torch.autograd.grad(1.5 * criterion(hidden, weight, target, bias), leaves)
            assert all(map(torch.equal, found, again)), "not the same bits twice"
            exact = [x.detach().double().requires_grad_() for x in leaves]
            kept = criterion.last_weights > 0
            logits = exact[0][kept] @ exact[1].T + (exact[2] if bias is not None else 0.0)
            expected = F.cross_entropy(logits, target[kept])
            true = torch.autograd.grad(1.5 * expected, exact)
            assert abs(value.item() - expected.item()) < LIMIT[dtype] * max(1.0, expected.item()), (value, expected)
            for mine, correct in zip(found, true, strict=True):
                error = ((mine.double() - correct).norm() / correct.norm()).item()
                assert error < LIMIT[dtype], (words, dtype, m, k, error)


def check_token_auto():
    """m="auto" by kernels is m="auto" in eager float64: weights and the sums that move on."""
    hidden, weight, target, _ = inputs(*SHAPES[1], torch.float32, False)
    one, other = rrt.LinearAoRRLoss("auto", warmup=1), rrt.LinearAoRRLoss("auto", warmup=1)
    for _ in range(3):
        value = one(hidden, weight, target)
        expected = other(hidden.double(), weight.double(), target)
        torch.testing.assert_close(value.double(), expected, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(one.last_weights.double(), other.last_weights, rtol=5e-3, atol=5e-3)
    torch.testing.assert_close(one.noise.below, other.noise.below, rtol=2e-2, atol=1.0)
