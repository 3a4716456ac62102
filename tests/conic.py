"""Fits of the largest losses as a conic solver is told them: the oracle of minima and of certificates."""

import cvxpy as cp
import numpy as np

LOSSES = {
    "logistic": lambda y, Z: cp.logistic(-cp.multiply(y, Z[0])),
    "hinge": lambda y, Z: cp.pos(1 - cp.multiply(y, Z[0])),
    "squared": lambda y, Z: cp.square(Z[0] - y),
    "absolute": lambda y, Z: cp.abs(Z[0] - y),
    "huber": lambda y, Z: cp.huber(Z[0] - y, 1.0) / 2,
    "softmax": lambda y, Z: cp.log_sum_exp(Z, axis=0) - cp.sum(cp.multiply(np.eye(Z.shape[0])[y].T, Z), axis=0),
}


def least_value(loss, X, y, C, K, caps=None):
    """min over coef and intercept of (the sum of the K largest losses) / K + ||coef||^2 / (2 C).

    A row counts up to its entry of `caps`, once without them.
    """
    n_outputs = int(y.max()) + 1 if loss == "softmax" else 1
    coef, intercept, level = cp.Variable((n_outputs, X.shape[1])), cp.Variable((n_outputs, 1)), cp.Variable()
    losses = LOSSES[loss](y, coef @ X.T + intercept @ np.ones((1, len(X))))
    top = K * level + (np.ones(len(X)) if caps is None else caps) @ cp.pos(losses - level)
    problem = cp.Problem(cp.Minimize(top / K + cp.sum_squares(coef) / (2 * C)))
    return problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
