"""The kernel of a pass over rows on a device against eager float64: called by tests, and by the check on a GPU."""

import numpy as np
import torch

from rankrange.core.losses import Logistic
from rankrange.core.objective import Design, Objective
from rankrange.device import newton_pass
from rankrange.device.device_objective import DeviceData
from rankrange.device.device_rows import DeviceRows
from rankrange.device.passes import Data, EagerPass, FusedPass, Sizes
from rankrange.device.tensors import Labels
from rankrange.shards.shard_kernels import Interval, Model, Request

CASES = [  # rows, columns, loss, intercept, weights, class weights, dtype of X, shares of the brackets
    (300, 5, "logistic", True, False, False, torch.float32, (None, (0.05, 0.1))),
    (129, 33, "logistic", True, True, False, torch.float32, ((0.8, 0.9), (0.05, 0.2))),
    (64, 1, "logistic", False, False, True, torch.float64, ((0.8, 0.9), None)),
    (257, 31, "squared", True, True, False, torch.float64, (None, (0.1, 0.3))),
    (100, 70, "huber", True, False, False, torch.float32, ((0.2, 0.9), (0.1, 0.5))),  # one bracket for both cuts
    (1, 2, "logistic", True, False, False, torch.float32, (None, None)),
]


def problem(case, device="cpu", seed=0):
    """Rows at random, a row of zeros and two equal rows among them, and a request with brackets of these shares."""
    n, d, loss, intercept, weighted, by_class, dtype, shares = case
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d))
    X[-1], X[n // 2] = X[0], 0.0
    y = rng.choice([-1, 1], n) if loss == "logistic" else rng.normal(size=n)
    y[-1] = y[0]
    classes = np.array([0, 1]) if loss == "logistic" else None
    model = Model(loss, 1, intercept, np.dtype(float), classes, np.array([0.5, 2.0]) if by_class else None)
    weight = torch.as_tensor(rng.integers(0, 3, n).astype(np.float32), device=device) if weighted else None
    y = torch.as_tensor(y, device=device).to(torch.int8 if loss == "logistic" else dtype)
    data = Data(torch.as_tensor(X, device=device).to(dtype), y, weight, model)
    W = rng.normal(size=(1, d + intercept)) / np.sqrt(d)
    s = np.sort(EagerPass(data).losses(W, 0, n).cpu().numpy())
    lower, upper = (None if part is None else Interval(*np.quantile(s, [1 - part[1], 1 - part[0]])) for part in shares)
    return data, Request(W, lower, upper)


def check_pass(case, device="cpu", seed=0):
    """The kernel finds what eager float64 finds; the largest relative error of a sum."""
    data, request = problem(case, device, seed)
    fused, eager = FusedPass(data), EagerPass(data)
    for values in (fused.sums_of, fused.pairs):
        values.fill_(torch.nan)  # what is not written is seen
    found, right = fused.sums(request), eager.sums(request)
    losses = fused.losses(request.W, 0, data.n)
    torch.testing.assert_close(losses, eager.losses(request.W, 0, data.n), rtol=1e-12, atol=1e-13)
    near = 1e-9  # a loss at the edge of a bracket may round to either side of it
    edges = [edge for bracket in (request.lower, request.upper) if bracket is not None for edge in bracket]
    safe = torch.stack([(losses - edge).abs() > near for edge in edges]).all(0) if edges else losses > -1
    assert found.least == losses[data.mass(slice(None)) > 0].min()
    assert (found.losses == losses[found.rows]).all()  # the same bits in every launch
    strict = {int(row) for row in right.rows if safe[row]}
    assert (
        strict
        <= {int(row) for row in found.rows}
        <= {int(row) for row in right.rows} | set(torch.nonzero(~safe)[:, 0].tolist())
    )
    rows = set(found.rows.tolist()) ^ set(right.rows.tolist())
    if rows:
        return 0.0
    np.testing.assert_allclose(found.masses, right.masses, rtol=1e-12)
    scale = np.abs(right.table).max(axis=0, initial=1e-9)
    error = float(np.max(np.abs(found.table - right.table) / np.maximum(scale, 1e-6 * scale.max())))
    if not data.model.fit_intercept:
        error = float(np.max(np.abs(np.delete(found.table - right.table, 3, axis=1))) / scale.max())
    assert error < (3e-6 if data.X.dtype == torch.float32 else 1e-11), error
    return error


def check_newton(case, device="cpu", seed=0):
    """The kernel of value, gradient and Hessian against eager float64; the largest relative error of an entry."""
    data, request = problem(case, device, seed)
    low = -np.inf if request.lower is None else request.lower.low
    high = np.inf if request.upper is None else request.upper.high
    tile = newton_pass.Tile(32, 4, 2)
    found, right = (
        newton_pass.by_kernel(data, request.W, low, high, tile),
        newton_pass.eager(data, request.W, low, high),
    )
    np.testing.assert_allclose([found.mass, found.loss], [right.mass, right.loss], rtol=1e-9)
    root = np.sqrt(np.maximum(np.diag(right.hessian), 1e-30))
    errors = [
        np.max(np.abs(found.hessian - right.hessian) / np.outer(root, root), initial=0.0),
        np.max(np.abs(found.gradient - right.gradient) / np.abs(right.gradient).max(initial=1e-9), initial=0.0),
    ]
    assert errors[0] < 1e-4, errors
    assert errors[1] < 1e-5, errors
    return float(max(errors))


def check_evaluation(listed_rows, device="cpu"):
    """The objective is the mean of the ranked losses, even if the brackets hold more rows than a pass lists."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = X @ [2.0, -1.0, 0.5] + rng.logistic(size=len(X)) > 0
    labels = Labels(np.array([0, 1]), torch.as_tensor(y, device=device).to(torch.int8))
    sizes = Sizes(bracket_rows=50, listed_rows=listed_rows)  # brackets from 50 rows hold nearly all rows
    rows = DeviceRows(torch.as_tensor(X, device=device), labels, sizes=sizes)
    rows.collected_rows = 1000
    model = Model("logistic", 1, True, np.dtype(float), np.array([0, 1]))
    some, sign = np.arange(0, len(X), 10), np.where(y, 1.0, -1.0)
    sample = Objective(Design(X[some], True), sign[some], Logistic(), 1e4, 1, m=30, k=240)
    data = DeviceData(rows, model, sample, len(X), float(len(X)), 300, 2400)
    assert isinstance(data.run, FusedPass)
    W = np.array([[1.5, -1.0, 0.2, 0.1]])
    ranked = np.sort(np.logaddexp(0.0, -sign * (X @ W[0, :3] + W[0, 3])))[::-1][300:2400]
    np.testing.assert_allclose(data.evaluate_at(W).value, ranked.mean() + data.sample.penalty(W), rtol=1e-9)
