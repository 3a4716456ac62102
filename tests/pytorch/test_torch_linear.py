"""Token losses with the last layer in one: losses and gradients are those of the definition in float64."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import rankrange as rr  # noqa: E402
import rankrange.torch as rrt  # noqa: E402

IGNORED = -100
# Torch's own deprecations at the first use of its compiler are not ours to fix.
compiled = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


def definition(hidden, weight, target, m, k, key="excess", per="token", bias=None, reference=None, softcap=None,
               label_smoothing=0.0):  # fmt: skip
    """(loss, kept tokens) from all logits: sort, take the ranks, average. Ties by position, the first highest."""
    logits = hidden @ weight.T if bias is None else hidden @ weight.T + bias
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    flat, y = logits.reshape(-1, logits.shape[-1]), target.reshape(-1)
    losses = F.cross_entropy(flat, y, reduction="none", ignore_index=IGNORED, label_smoothing=label_smoothing)
    plain = F.cross_entropy(flat, y, reduction="none", ignore_index=IGNORED)
    if key == "excess":
        p = flat.softmax(1)
        keys = plain - (p * (-flat.log_softmax(1))).nan_to_num().sum(1)
    else:
        keys = losses - (0.0 if reference is None else reference.reshape(-1))
    counted = y != IGNORED
    units = [[i] for i in range(len(y)) if counted[i]]
    if per == "sequence":
        rows = torch.arange(len(y)).reshape(target.shape[0], -1)
        units = [[int(i) for i in row if counted[i]] for row in rows]
        units = [unit for unit in units if unit]
    if not units:
        return (flat * 0.0).sum(), []
    units.sort(key=lambda unit: -float(keys.detach()[unit].mean()))  # Python's sort is stable
    low, high = (round(x * len(units)) if isinstance(x, float) else x for x in (m, k))
    if low >= high:
        exact = [x * len(units) if isinstance(x, float) else x for x in (m, k)]
        low = int(sum(exact) / 2)
        high = low + 1
    kept = [i for unit in units[low:high] for i in unit]
    return losses[kept].mean(), sorted(kept)


def batch(seed=0, shape=(5, 7), features=4, words=11, dtype=torch.float64, spread=1.0, ignored=0.3, bias=False):
    g = torch.Generator().manual_seed(seed)
    hidden = (spread * torch.randn(*shape, features, generator=g, dtype=torch.float64)).to(dtype).requires_grad_()
    weight = torch.randn(words, features, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    target = torch.randint(0, words, shape, generator=g)
    target = torch.where(torch.rand(shape, generator=g) < ignored, IGNORED, target)
    b = torch.randn(words, generator=g, dtype=torch.float64).to(dtype).requires_grad_() if bias else None
    return hidden, weight, target, b


def gradients(value, *inputs):
    inputs = [x for x in inputs if x is not None]
    return torch.autograd.grad(1.7 * value, inputs)


def check(hidden, weight, target, m, k, rtol=1e-10, atol=1e-12, **options):
    value = rrt.linear_ranked_range(hidden, weight, target, m, k, **options)
    options.pop("ignore_index", None)
    exact = [x if x is None else x.detach().double().requires_grad_() for x in (hidden, weight, options.get("bias"))]
    options["key"] = options.get("key") or ("excess" if options.get("per", "token") == "token" else "loss")
    expected, _ = definition(*exact[:2], target, m, k, **{**options, "bias": exact[2]})
    torch.testing.assert_close(value.double(), expected, rtol=rtol, atol=atol)
    found = gradients(value, hidden, weight, options.get("bias"))
    for mine, true in zip(found, gradients(expected, *exact), strict=True):
        torch.testing.assert_close(mine.double(), true, rtol=rtol, atol=atol)


RANKS = [(0.2, 0.8), (0, 1.0), (0.0, 0.5), (0.3, 1.0), (2, 9), (0, 1), (4, 5), (1, 1.0), (0.45, 0.46)]


@pytest.mark.parametrize("ranks", RANKS, ids=str)
@pytest.mark.parametrize("key", ["excess", "loss"])
def test_loss_and_gradients_are_those_of_the_definition(ranks, key):
    hidden, weight, target, bias = batch(bias=True)
    check(hidden, weight, target, *ranks, key=key, bias=bias)
    check(hidden, weight, target, *ranks, key=key, bias=bias, softcap=2.0, label_smoothing=0.1)


@pytest.mark.parametrize("ranks", [(0.2, 0.8), (0, 1.0), (1, 3), (0.5, 0.51)], ids=str)
@pytest.mark.parametrize("key", ["excess", None])
def test_sequences_are_ranked_by_their_mean(ranks, key):
    hidden, weight, target, _ = batch(seed=1)
    target[2] = IGNORED
    check(hidden, weight, target, *ranks, key=key, per="sequence")


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    m=st.floats(0.0, 0.9),
    width=st.floats(0.01, 1.0),
    ignored=st.sampled_from([0.0, 0.5, 0.9]),
    per=st.sampled_from(["token", "sequence"]),
    spread=st.sampled_from([0.0, 1.0, 300.0]),
)
def test_any_batch_equals_the_definition(seed, n, m, width, ignored, per, spread):
    hidden, weight, target, _ = batch(seed, (n, 3), ignored=ignored, spread=spread)
    check(hidden, weight, target, m, min(m + width, 1.0), per=per, rtol=1e-9, atol=1e-10)


def test_reference_losses_decide_the_rank_and_not_the_loss():
    hidden, weight, target, _ = batch()
    reference = torch.rand(target.shape, dtype=torch.float64)
    check(hidden, weight, target, 0, 0.6, key="reference", reference=reference)
    value = rrt.linear_ranked_range(hidden, weight, target, 0, 0.6, reference=reference)
    torch.testing.assert_close(
        value, definition(hidden, weight, target, 0, 0.6, key="reference", reference=reference)[0]
    )


def test_of_equal_keys_the_first_in_the_batch_has_the_higher_rank():
    hidden = torch.ones(6, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 2, dtype=torch.float64)
    target = torch.tensor([3, IGNORED, 3, 3, 3, 3])
    (slopes,) = torch.autograd.grad(rrt.linear_ranked_range(hidden, weight, target, 2, 4), hidden)
    assert slopes.abs().sum(1).nonzero()[:, 0].tolist() == [3, 4]


@pytest.mark.parametrize("scale", [1e3, 1e4, 3e37])
def test_extreme_logits_stay_finite_and_right(scale):
    hidden, weight, target, _ = batch(spread=scale, dtype=torch.float32, ignored=0.0)
    if scale > 1e30:
        hidden = hidden.detach().clamp(-1e38, 1e38).requires_grad_()
        value = rrt.linear_ranked_range(hidden, weight.detach() / 100, target, 0.1, 0.9)
        assert value.isfinite()
        assert all(g.isfinite().all() for g in torch.autograd.grad(value, hidden))
    else:  # numbers of few digits, so that the logits are exact in float32 too
        hidden, weight = ((x.detach() * 4).round() / 4 for x in (hidden, weight))
        check(hidden.requires_grad_(), weight.requires_grad_(), target, 0.1, 0.9, rtol=1e-5, atol=1e-5)


def test_a_word_that_cannot_be_has_an_infinite_loss_which_can_be_dropped():
    hidden, weight, target, bias = batch(bias=True, ignored=0.0)
    with torch.no_grad():
        bias[3] = -torch.inf
    n = int((target == 3).sum())
    assert n > 0
    assert rrt.linear_ranked_range(hidden, weight, target, 0, 1.0, bias=bias).isinf()
    value = rrt.linear_ranked_range(hidden, weight, target, n, 1.0, bias=bias)
    other = torch.where(target == 3, IGNORED, target)
    expected = rrt.linear_ranked_range(hidden, weight, other, 0, 1.0, bias=bias)
    torch.testing.assert_close(value, expected)
    for mine, true in zip(gradients(value, hidden, weight), gradients(expected, hidden, weight), strict=True):
        torch.testing.assert_close(mine, true)


@pytest.mark.parametrize("ranks", [(0.2, 0.9), (0, 1.0)], ids=str)
def test_nan_is_loud_but_not_in_an_ignored_token(ranks):
    hidden, weight, target, _ = batch(ignored=0.0)
    with torch.no_grad():
        hidden[1, 2] = torch.nan
    value = rrt.linear_ranked_range(hidden, weight, target, *ranks)
    assert value.isnan()
    if ranks != (0, 1.0):
        assert all(g.isnan().any() for g in gradients(value, hidden, weight))
    target[1, 2] = IGNORED
    assert rrt.linear_ranked_range(hidden, weight, target, *ranks).isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("ranks", [(0.2, 0.9), (0, 1.0)], ids=str)
def test_narrow_dtypes(dtype, ranks):
    hidden, weight, target, _ = batch(dtype=dtype, features=8, ignored=0.1)
    criterion = rrt.LinearAoRRLoss(*ranks)
    value = criterion(hidden, weight, target)
    assert value.dtype == torch.float32
    # Which tokens are kept may differ where rounded logits tie: the loss is compared on those that were.
    exact = hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    kept = criterion.last_weights.bool() if ranks != (0, 1.0) else target != IGNORED
    expected = F.cross_entropy((exact[0] @ exact[1].T)[kept], target[kept])
    tolerance = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    for mine, true in zip(gradients(value, hidden, weight), gradients(expected, *exact), strict=True):
        assert mine.dtype == dtype
        assert (mine.double() - true).norm() < tolerance * true.norm()


@pytest.mark.parametrize("per", ["token", "sequence"])
@pytest.mark.parametrize("ranks", [(0.2, 0.9), (0, 1.0), (1, 3)], ids=str)
def test_nothing_to_rank_gives_zero_with_zero_gradients(per, ranks):
    for shape in [(0, 4), (3, 4)]:
        hidden, weight, target, _ = batch(shape=shape, ignored=2.0)
        value = rrt.linear_ranked_range(hidden, weight, target, *ranks, per=per)
        assert value == 0
        assert all((g == 0).all() for g in gradients(value, hidden, weight))


LARGE = {"shape": (16, 9), "words": 40_000, "ignored": 0.0}  # 144 tokens: 46 MB of logits, more than a block has


@pytest.mark.parametrize("ranks", [(0.05, 0.95), (0, 1.0)], ids=str)
def test_many_words_are_processed_in_blocks_and_equal_the_definition(ranks):
    hidden, weight, target, bias = batch(**LARGE, bias=True)
    check(hidden, weight, target, *ranks, bias=bias, softcap=2.0, label_smoothing=0.1)


@pytest.mark.parametrize(("ranks", "products"), [((0.1, 0.5), 1 + 2 * 0.4), ((0, 1.0), 2)], ids=str)
def test_all_logits_are_never_in_memory_nor_computed_twice(ranks, products):
    """Two more products for gradients, of the kept tokens alone; that of the hidden states is not counted."""
    hidden, weight, target, _ = batch(**LARGE)
    logits = hidden.shape[:-1].numel() * len(weight)

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            self.size = max([self.size, *(x.numel() for x in tree_leaves(found) if isinstance(x, torch.Tensor))])
            return found

    with Largest() as largest, FlopCounterMode(display=False) as flops:
        gradients(rrt.linear_ranked_range(hidden, weight, target, *ranks), hidden, weight)
    assert largest.size < 0.8 * logits
    one = 2 * logits * hidden.shape[-1]  # a multiplication and an addition
    assert flops.get_total_flops() <= 1.05 * products * one
    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        rrt.linear_ranked_range(hidden, weight, target, *ranks)
    assert flops.get_total_flops() == one


@compiled
def test_a_step_under_torch_compile_is_one_graph():
    torch._dynamo.reset()
    hidden, weight, target, _ = batch()

    def step(h, w, y):
        return rrt.linear_ranked_range(torch.tanh(h), w, y, 0.1, 0.8)

    run = torch.compile(step, backend="aot_eager", fullgraph=True)
    expected, found = step(hidden, weight, target), run(hidden, weight, target)
    torch.testing.assert_close(found, expected)
    for mine, true in zip(gradients(found, hidden, weight), gradients(expected, hidden, weight), strict=True):
        torch.testing.assert_close(mine, true)


@pytest.mark.parametrize("ignored", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    "keep", [rr.RankedRange.median(), rr.RankedRange.kth(0.5), rr.RankedRange.robust_maximum(0.2)], ids=repr
)
@pytest.mark.parametrize("shape", [(4, 7), (5, 7)], ids=str)
def test_the_median_and_single_ranks_of_tokens_are_those_of_counts(keep, shape, ignored):
    hidden, weight, target, _ = batch(shape=shape, ignored=ignored)
    n = int((target != IGNORED).sum())
    m, k = keep.counts(n) if n else (0, 0)
    value = rrt.linear_ranked_range(hidden, weight, target, keep)
    expected, _ = definition(hidden, weight, target, m, k)
    torch.testing.assert_close(value, expected)
    for mine, true in zip(gradients(value, hidden, weight), gradients(expected, hidden, weight), strict=True):
        torch.testing.assert_close(mine, true)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.zeros(5, 7)}, "one integer per token"),
        ({"target": torch.full((5, 7), 11)}, "from 0 to 10"),
        ({"weight": torch.zeros(11, 3)}, "need hidden"),
        ({"weight": torch.zeros(11, 4)}, "one dtype"),
        ({"key": "perplexity"}, "key must be"),
        ({"key": "reference"}, "belong together"),
        ({"key": "loss", "reference": torch.zeros(5, 7)}, "belong together"),
        ({"reference": torch.zeros(5)}, "one loss per token"),
        ({"per": "batch"}, "per must be"),
        ({"bias": torch.zeros(3)}, "bias must have"),
        ({"softcap": 0.0}, "softcap must be"),
        ({"label_smoothing": 1.0}, "label_smoothing must be"),
        ({"m": 100, "k": 200}, "need 0 <= m < k <= n"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_errors_say_what_is_wrong(change, message):
    hidden, weight, target, _ = batch()
    given = {"hidden": hidden, "weight": weight, "target": target, "m": 0.1, "k": 0.9, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        rrt.linear_ranked_range(**given)


# --- weights of tokens, losses of tokens, chunks


@pytest.mark.parametrize("ranks", [(0.2, 0.8), (0, 1.0)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_weights_of_tokens_weigh_the_kept_losses(ranks, reduction):
    hidden, weight, target, bias = batch(bias=True)
    w = torch.rand(target.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if reduction == "sum":
        w = w - 0.5  # such as advantages
    value = rrt.linear_ranked_range(
        hidden, weight, target, *ranks, bias=bias, token_weights=w.requires_grad_(), reduction=reduction
    )
    _, kept = definition(hidden, weight, target, *ranks, bias=bias)
    losses = F.cross_entropy((hidden @ weight.T + bias).reshape(-1, len(weight)), target.reshape(-1), reduction="none")
    chosen = w.detach().reshape(-1)[kept]
    expected = (losses[kept] * chosen).sum() / (chosen.sum() if reduction == "mean" else 1.0)
    torch.testing.assert_close(value, expected)
    for mine, true in zip(
        gradients(value, hidden, weight, bias), gradients(expected, hidden, weight, bias), strict=True
    ):
        torch.testing.assert_close(mine, true)
    assert not torch.autograd.grad(value, w, allow_unused=True)[0]
    by_loss = rrt.linear_ranked_range(
        hidden, weight, target, *ranks, bias=bias, reduction=reduction, token_weights=lambda x: torch.exp(-x), chunk=5
    )
    p = torch.exp(-rrt.token_losses(hidden, weight, target, bias=bias))
    expected = rrt.linear_ranked_range(hidden, weight, target, *ranks, bias=bias, reduction=reduction, token_weights=p)
    torch.testing.assert_close(by_loss, expected)
    with pytest.raises(ValueError, match="one weight per token"):
        rrt.linear_ranked_range(hidden, weight, target, 0, 1.0, token_weights=w[0])


def test_losses_of_tokens_are_those_of_full_logits_without_gradient():
    hidden, weight, target, bias = batch(bias=True)
    found = rrt.token_losses(hidden, weight, target, bias=bias, softcap=2.0, label_smoothing=0.1)
    logits = 2.0 * torch.tanh((hidden @ weight.T + bias) / 2.0)
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none", label_smoothing=0.1)
    torch.testing.assert_close(found, expected.detach().reshape(target.shape))
    assert not found.requires_grad
    assert (found[target == IGNORED] == 0).all()


@pytest.mark.parametrize("ranks", [(0.2, 0.8), (0, 1.0)], ids=str)
@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_chunks_change_memory_and_not_the_result(ranks, chunk):
    hidden, weight, target, bias = batch(bias=True)
    whole = rrt.linear_ranked_range(hidden, weight, target, *ranks, bias=bias)
    parts = rrt.linear_ranked_range(hidden, weight, target, *ranks, bias=bias, chunk=chunk)
    torch.testing.assert_close(parts, whole)
    for mine, true in zip(gradients(parts, hidden, weight, bias), gradients(whole, hidden, weight, bias), strict=True):
        torch.testing.assert_close(mine, true)


def test_with_chunks_backward_is_once():
    hidden, weight, target, _ = batch()
    value = rrt.linear_ranked_range(hidden, weight, target, 0, 1.0, chunk=4)
    torch.autograd.grad(value, hidden, retain_graph=True)
    with pytest.raises(RuntimeError, match="call backward once"):
        torch.autograd.grad(value, hidden)


def test_a_fused_loss_keeps_nothing_of_the_batch_alive():
    hidden, weight, target, _ = batch()
    loss = rrt.LinearAoRRLoss(m=0.25)
    loss(torch.tanh(hidden), weight, target)
    stored = [x for x in tree_leaves(loss._last) if isinstance(x, torch.Tensor)]
    assert all(not x.requires_grad and x.untyped_storage().nbytes() <= 8 * target.numel() for x in stored)
