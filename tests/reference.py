"""The oracle: the corrected algorithms of the paper in the plainest NumPy, float64, loops and all.

Rows are signals, so the paper's matrices appear transposed. N signals Y (N x m), n atoms A (n x p), codes
Z (N x n, dense here), p kernel vectors D (p x m), features F = K(Y, D) (N x p), metric M = K(D, D) (p x p).
Linear dictionary learning is F = Y, M = I; full kernel dictionary learning is F = M = K(Y, Y).

Nothing here revives an unused atom or changes its arguments.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

# Below this, relative to its scale, a correlation is zero, an atom dependent, and two scores a tie.
ROUNDING = 1e-12


def kernel(X, Y, name="rbf", gamma=1.0, degree=3, coef0=1.0):
    """Kernel matrix, pair by pair: entry (i, j) is k(x_i, y_j).

    "rbf": exp(-gamma |x - y|^2);  "poly": (gamma x'y + coef0)^degree;  "linear": x'y.

    Takes X (a, m); Y (b, m); returns (a, b).
    """
    X = np.asarray(X, dtype=float)
    Y = np.asarray(Y, dtype=float)
    values = np.zeros((len(X), len(Y)))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            if name == "rbf":
                values[i, j] = np.exp(-gamma * np.sum((x - y) ** 2))
            elif name == "poly":
                values[i, j] = (gamma * (x @ y) + coef0) ** degree
            elif name == "linear":
                values[i, j] = x @ y
            else:
                raise ValueError(f"unknown kernel {name!r}")
    return values


def kernel_derivative(x, y, name="rbf", gamma=1.0, degree=3, coef0=1.0):
    """Derivative of k(x, y) with respect to its first argument.

    "rbf": -2 gamma k(x, y) (x - y);  "poly": degree gamma (gamma x'y + coef0)^(degree - 1) y;  "linear": y.

    Takes x, y (m,); returns (m,).
    """
    x = np.asarray(x, dtype=float)
    y = np.asarray(y, dtype=float)
    if name == "rbf":
        return -2.0 * gamma * np.exp(-gamma * np.sum((x - y) ** 2)) * (x - y)
    if name == "poly":
        return degree * gamma * (gamma * (x @ y) + coef0) ** (degree - 1) * y
    if name == "linear":
        return y.copy()
    raise ValueError(f"unknown kernel {name!r}")


def solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right; the solution of least norm where the matrix is singular."""
    return np.linalg.lstsq(matrix, right, rcond=None)[0]


def normalise(A: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Atoms scaled so that a_j' M a_j = 1; an atom of zero norm is left as it is.

    Takes A (n, p); M (p, p); returns (n, p).
    """
    A = np.array(A, dtype=float)
    for j in range(len(A)):
        norm = np.sqrt(max(A[j] @ M @ A[j], 0.0))
        if norm > 0:
            A[j] = A[j] / norm
    return A


def pursuit(gram, correlations, squared_norm, n_nonzero_coefs, residual_tol=None, kind="ols", positive=False):
    """Sparse code of one signal.

    Each step adds one atom to the support S and solves least squares on it: z_S = G_SS^-1 c_S, with residual
    correlations r = c - G z and squared residual |y|^2 - c_S' z_S. "omp" adds the atom of the largest
    |r_j| / sqrt(G_jj). "ols" adds the one that lowers the squared residual the most: by r_T' G_TT^-1 r_T, the
    least squares fit of the residual on T = S + {j}. The lowest index wins a tie.

    It stops at n_nonzero_coefs atoms, at a squared residual of residual_tol or less, or when every atom left
    depends linearly on the chosen ones or has no correlation with the residual.

    With `positive`, only atoms with r_j > 0 are added, z is non-negative least squares on S, and atoms whose
    coefficient it makes zero leave S.

    Takes gram (n, n), inner products of the atoms; they need not have unit norm; correlations (n,), inner products of
    the signal with the atoms; squared_norm squared norm of the signal; returns (n,).
    """
    if kind not in ("omp", "ols"):
        raise ValueError(f"unknown pursuit {kind!r}")
    gram = np.asarray(gram, dtype=float)
    correlations = np.asarray(correlations, dtype=float)
    n = len(gram)
    code = np.zeros(n)
    support: list[int] = []

    while len(support) < min(n_nonzero_coefs, n):
        if residual_tol is not None and squared_norm - correlations @ code <= residual_tol:
            break

        residual = correlations - gram @ code
        scores = np.zeros(n)
        for j in range(n):
            if j in support or gram[j, j] <= 0:
                continue
            on_chosen = np.linalg.solve(gram[np.ix_(support, support)], gram[support, j])
            if gram[j, j] - gram[j, support] @ on_chosen <= ROUNDING * gram[j, j]:
                continue
            if (residual[j] if positive else abs(residual[j])) <= ROUNDING * np.sqrt(gram[j, j] * squared_norm):
                continue
            if kind == "omp":
                scores[j] = abs(residual[j]) / np.sqrt(gram[j, j])
            else:
                trial = [*support, j]
                scores[j] = residual[trial] @ np.linalg.solve(gram[np.ix_(trial, trial)], residual[trial])

        if scores.max() <= 0:
            break
        tied = np.flatnonzero(scores >= (1 - ROUNDING) * scores.max())
        support.append(int(tied[0]))
        if positive:
            factor = np.linalg.cholesky(gram[np.ix_(support, support)])
            best = nnls(factor.T, np.linalg.solve(factor, correlations[support]))[0]
            code = np.zeros(n)
            code[support] = best
            support = [j for j in support if code[j] > 0]
        else:
            code[support] = np.linalg.solve(gram[np.ix_(support, support)], correlations[support])

    return code


def encode(F, A, M, squared_norms, n_nonzero_coefs, residual_tol=None, kind="ols"):
    """Sparse codes of all signals: kernel pursuit with gram A M A' and correlations F A'.

    Takes F (N, p); A (n, p); M (p, p); squared_norms (N,), k(y_t, y_t); residual_tol, one number or (N,); returns
    (N, n).
    """
    gram = A @ M @ A.T
    Z = np.zeros((len(F), len(A)))
    for t in range(len(F)):
        tolerance = residual_tol[t] if np.ndim(residual_tol) else residual_tol
        Z[t] = pursuit(gram, A @ F[t], squared_norms[t], n_nonzero_coefs, tolerance, kind)
    return Z


def encode_observed(Y, known, D, n_nonzero_coefs, kind="ols"):
    """Sparse codes of signals of which some numbers are known, each in the atoms' numbers at its places.

    Takes Y (N, m); known (N, m), bool; D (n, m); returns (N, n).
    """
    Z = np.zeros((len(Y), len(D)))
    for t in range(len(Y)):
        y, A = Y[t, known[t]], D[:, known[t]]
        Z[t] = pursuit(A @ A.T, A @ y, y @ y, n_nonzero_coefs, kind=kind)
    return Z


def objective(trace: float, Z: np.ndarray, F: np.ndarray, A: np.ndarray, M: np.ndarray) -> float:
    """|phi(Y) - phi(D) A' Z'|^2 = tr K(Y, Y) - 2 <Z'F, A> + <Z'Z, A M A'>.

    Takes trace tr K(Y, Y); Z (N, n); F (N, p); A (n, p); M (p, p).
    """
    return float(trace - 2 * np.sum((Z.T @ F) * A) + np.sum((Z.T @ Z) * (A @ M @ A.T)))


def error(objective: float, N: int, m: int) -> float:
    """The figure that the paper reports, sqrt(f / (m N))."""
    return float(np.sqrt(max(objective, 0.0) / (m * N)))


def gram_update(Z: np.ndarray, F: np.ndarray, A: np.ndarray, M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One sweep over the atoms from S = Z'Z and P = Z'F.

    For j = 1..n:  a = M^-1 P_j' - sum_{i != j} S_ji a_i,  c = sqrt(a' M a),  a_j = a / c,
    z_j = (c / S_jj) z_j. The product z_j a_j' is then the best one for that direction of z_j. An unused atom
    is left.

    Takes Z (N, n); F (N, p); A (n, p); M (p, p); returns A (n, p); Z (N, n).
    """
    A = np.array(A, dtype=float)
    Z = np.array(Z, dtype=float)
    for j in range(len(A)):
        S = Z.T @ Z
        P = Z.T @ F
        if S[j, j] == 0:
            continue
        atom = solve(M, P[j])
        for i in range(len(A)):
            if i != j:
                atom = atom - S[j, i] * A[i]
        c = np.sqrt(max(atom @ M @ atom, 0.0))
        if c > 0:
            A[j] = atom / c
        Z[:, j] = Z[:, j] * c / S[j, j]
    return A, Z


def aksvd_update(Z: np.ndarray, F: np.ndarray, A: np.ndarray, M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One sweep over the atoms, Algorithm 1 of the paper with its sign corrected, on the support alone.

    For j = 1..n, over the signals t that use atom j, with R_t = sum_{i != j} z_ti a_i:
    E_t = F_t - M R_t,  a_j = (|z_j|^2 M)^-1 sum_t z_tj E_t,  a_j = a_j / sqrt(a_j' M a_j),  z_tj = E_t' a_j.
    An unused atom is left.

    Takes Z (N, n); F (N, p); A (n, p); M (p, p); returns A (n, p); Z (N, n).
    """
    A = np.array(A, dtype=float)
    Z = np.array(Z, dtype=float)
    n, p = A.shape
    for j in range(n):
        support = np.flatnonzero(Z[:, j])
        if len(support) == 0:
            continue
        E = {}
        for t in support:
            R = np.zeros(p)
            for i in range(n):
                if i != j:
                    R = R + Z[t, i] * A[i]
            E[t] = F[t] - M @ R
        right = np.zeros(p)
        for t in support:
            right = right + Z[t, j] * E[t]
        atom = solve(np.sum(Z[:, j] ** 2) * M, right)
        norm = np.sqrt(max(atom @ M @ atom, 0.0))
        if norm > 0:
            A[j] = atom / norm
        for t in support:
            Z[t, j] = E[t] @ A[j]
    return A, Z


def kdl_residual(Z: np.ndarray, A: np.ndarray, j: int) -> np.ndarray:
    """E = I - sum_{i != j} a_i z_i' (N x N): phi(Y) E is the residual without atom j."""
    E = np.eye(len(Z))
    for i in range(len(A)):
        if i != j:
            E = E - np.outer(A[i], Z[:, i])
    return E


def kdl_gram_update(Z: np.ndarray, A: np.ndarray, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`gram_update` for the full kernel with its N x N residual.

    For j = 1..n:  a = E z_j,  c = sqrt(a' K a),  a_j = a / c,  z_j = (c / |z_j|^2) z_j.

    Takes Z (N, n); A (n, N); K (N, N); returns A (n, N); Z (N, n).
    """
    A = np.array(A, dtype=float)
    Z = np.array(Z, dtype=float)
    for j in range(len(A)):
        if not Z[:, j].any():
            continue
        atom = kdl_residual(Z, A, j) @ Z[:, j]
        c = np.sqrt(max(atom @ K @ atom, 0.0))
        if c > 0:
            A[j] = atom / c
        Z[:, j] = Z[:, j] * c / np.sum(Z[:, j] ** 2)
    return A, Z


def kdl_aksvd_update(Z: np.ndarray, A: np.ndarray, K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`aksvd_update` for the full kernel with its N x N residual.

    For j = 1..n:  a_j = E z_j,  a_j = a_j / sqrt(a_j' K a_j),  z_tj = (E' K a_j)_t for the t that use atom j.

    Takes Z (N, n); A (n, N); K (N, N); returns A (n, N); Z (N, n).
    """
    A = np.array(A, dtype=float)
    Z = np.array(Z, dtype=float)
    for j in range(len(A)):
        support = np.flatnonzero(Z[:, j])
        if len(support) == 0:
            continue
        E = kdl_residual(Z, A, j)
        atom = E @ Z[:, j]
        norm = np.sqrt(max(atom @ K @ atom, 0.0))
        if norm > 0:
            A[j] = atom / norm
        for t in support:
            Z[t, j] = E[:, t] @ K @ A[j]
    return A, Z


MOMENTUM, ALIKE = 0.8, 0.85
SWEEPS = {"momentum": gram_update, "gram": gram_update, "aksvd": aksvd_update}
KDL_SWEEPS = {"momentum": kdl_gram_update, "gram": kdl_gram_update, "aksvd": kdl_aksvd_update}


def shared_directions(L, explained, residuals, M, count, seed):
    """Main directions (count, p) of groups of what codes with one atom less leave, L (N, p).

    Groups begin with signals that are drawn by their residuals; each signal belongs to the direction on whose line its
    projection is longest, if it explains more than its last atom did.
    """
    drawn = np.random.RandomState(seed).choice(len(L), count, replace=False, p=residuals / residuals.sum())
    directions = normalise(L[drawn], M)
    for _ in range(2):
        W = np.zeros((len(L), count))
        for t, projections in enumerate(L @ M @ directions.T):
            k = np.argmax(np.abs(projections))
            W[t, k] = projections[k] if projections[k] ** 2 > explained[t] else 0.0
        directions = normalise(W.T @ L, M)
    return directions


def replace_useless(A, F, M, n_nonzero_coefs, residual_tol, kind, seed):
    """Atoms to replace, and what by: directions that signals would miss more, coded with atoms and directions."""
    Y = np.array([solve(M, f) for f in F])
    squares = np.sum(Y * F, axis=1)

    def left_by(A, n_nonzero):
        L = Y - encode(F, A, M, squares, n_nonzero, residual_tol, kind) @ A if n_nonzero else Y
        return L, np.einsum("tp,pq,tq->t", L, M, L)

    L, left = left_by(A, n_nonzero_coefs - 1)
    residuals = np.minimum(left_by(A, n_nonzero_coefs)[1], left)
    residuals[residuals <= 1e3 * np.finfo(float).eps * squares.mean()] = 0.0
    count, n = min(-(-len(A) // 5), len(F) // 5), len(A)
    both = np.vstack([A, shared_directions(L, left - residuals, residuals, M, count, seed)])
    total, uses, dropped = left_by(both, n_nonzero_coefs)[1].sum(), np.zeros(len(both)), []
    for j in range(len(both)):
        without = both.copy()
        without[j] = 0.0
        uses[j] = max(0.0, left_by(without, n_nonzero_coefs)[1].sum() - total)
    while len(dropped) < count and np.isfinite(uses.min()):
        dropped.append(int(np.argmin(uses)))
        uses[(both @ M @ both[dropped[-1]]) ** 2 > ALIKE] = uses[dropped[-1]] = np.inf
    old = [j for j in dropped if j < n]
    new = [j for j in range(n, len(both)) if j not in dropped][: len(old)]
    return old[: len(new)], both[new]


def kernel_trace(Y: np.ndarray, name: str, gamma: float, degree: int, coef0: float) -> float:
    """tr K(Y, Y), signal by signal."""
    return float(sum(kernel([y], [y], name, gamma, degree, coef0)[0, 0] for y in Y))


def linear_objective(D: np.ndarray, Y: np.ndarray, weight: float, X: np.ndarray | None) -> float:
    """weight |Y - X D|^2, the linear term of MORKDL-D; X is N x p."""
    if weight == 0:
        return 0.0
    return float(weight * sum(np.sum((Y[t] - X[t] @ D) ** 2) for t in range(len(Y))))


def features_and_metric(D, Y, name, gamma, degree, coef0):
    """F = K(Y, D), (N, p), and M = K(D, D), (p, p)."""
    return kernel(Y, D, name, gamma, degree, coef0), kernel(D, D, name, gamma, degree, coef0)


def best_atoms(D, Y, Z, *, kernel="rbf", gamma=1.0, degree=3, coef0=1.0):
    """Least squares atoms for given kernel vectors and codes: A = S^-1 P M^-1, not normalised.

    Takes D (p, m); Y (N, m); Z (N, n); returns (n, p).
    """
    F, M = features_and_metric(D, Y, kernel, gamma, degree, coef0)
    return solve(M, solve(Z.T @ Z, Z.T @ F).T).T


def fixed_objective(D, Y, Z, A, *, kernel="rbf", gamma=1.0, degree=3, coef0=1.0, linear_weight=0.0, X=None):
    """Objective as a function of the kernel vectors, atoms and codes held: f + linear_weight |Y - X D|^2.

    Takes D (p, m); Y (N, m); Z (N, n); A (n, p); X (N, p), codes of the linear term.
    """
    F, M = features_and_metric(D, Y, kernel, gamma, degree, coef0)
    trace = kernel_trace(Y, kernel, gamma, degree, coef0)
    return objective(trace, Z, F, A, M) + linear_objective(D, Y, linear_weight, X)


def fixed_gradient_of_one(i, D, Y, Z, A, *, kernel="rbf", gamma=1.0, degree=3, coef0=1.0, linear_weight=0.0, X=None):
    """Gradient of `fixed_objective` with respect to the kernel vector d_i alone.

    With W = Z A (N x p), V = A' Z'Z A (p x p) and d1 the derivative in the first argument,
    df/dd_i = -2 sum_t W_ti d1 k(d_i, y_t) + 2 sum_q V_iq d1 k(d_i, d_q)
              - 2 linear_weight sum_t X_ti (y_t - sum_q X_tq d_q).

    Returns (m,).
    """
    W = Z @ A
    V = A.T @ Z.T @ Z @ A
    gradient = np.zeros(D.shape[1])
    for t in range(len(Y)):
        gradient -= 2 * W[t, i] * kernel_derivative(D[i], Y[t], kernel, gamma, degree, coef0)
    # The diagonal q = i needs no exception: d k(d, d) / dd = 2 d1 k(d, d).
    for q in range(len(D)):
        gradient += 2 * V[i, q] * kernel_derivative(D[i], D[q], kernel, gamma, degree, coef0)
    if linear_weight != 0:
        for t in range(len(Y)):
            gradient -= 2 * linear_weight * X[t, i] * (Y[t] - X[t] @ D)
    return gradient


def fixed_gradient(D, Y, Z, A, *, kernel="rbf", gamma=1.0, degree=3, coef0=1.0, linear_weight=0.0, X=None):
    """Gradient of `fixed_objective` with respect to D, one kernel vector after another.

    Returns (p, m).
    """
    options = {"kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0}
    gradient = np.zeros(D.shape)
    for i in range(len(D)):
        gradient[i] = fixed_gradient_of_one(i, D, Y, Z, A, linear_weight=linear_weight, X=X, **options)
    return gradient


def projected_objective(D, Y, Z, *, kernel="rbf", gamma=1.0, degree=3, coef0=1.0, linear_weight=0.0, X=None):
    """Objective as a function of the kernel vectors, codes held and atoms eliminated (variable projection).

    f(D) = min_A f = tr K(Y, Y) - <P, S^-1 P M^-1>, plus linear_weight |Y - X D|^2.

    Takes D (p, m); Y (N, m); Z (N, n); X (N, p), codes of the linear term.
    """
    options = {"kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0}
    A = best_atoms(D, Y, Z, **options)
    return fixed_objective(D, Y, Z, A, linear_weight=linear_weight, X=X, **options)


def projected_gradient(D, Y, Z, *, kernel="rbf", gamma=1.0, degree=3, coef0=1.0, linear_weight=0.0, X=None):
    """Gradient of `projected_objective` with respect to D.

    It is `fixed_gradient` at the least squares atoms: their own change with D adds nothing, because df/dA = 0
    there.

    Returns (p, m).
    """
    options = {"kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0}
    A = best_atoms(D, Y, Z, **options)
    return fixed_gradient(D, Y, Z, A, linear_weight=linear_weight, X=X, **options)


def gd_sweep(
    D, Y, Z, A, rate, *, kernel="rbf", gamma=1.0, degree=3, coef0=1.0, linear_weight=0.0, X=None, unit_norm=None
):
    """One sweep of the paper's rule: d_j = d_j - rate df/dd_j for j = 1..p, those before j already moved.

    With unit_norm = r, d_j is rescaled to norm r right after its step (MORKDL-D).

    Returns (p, m).
    """
    options = {"kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0}
    D = np.array(D, dtype=float)
    for j in range(len(D)):
        D[j] -= rate * fixed_gradient_of_one(j, D, Y, Z, A, linear_weight=linear_weight, X=X, **options)
        if unit_norm is not None and D[j].any():
            D[j] *= unit_norm / np.linalg.norm(D[j])
    return D


class Fit(NamedTuple):
    """A, the best atoms met, Z, their codes, and errors sqrt(f / (m N)).

    errors has one figure an iteration up to the best, of the signals coded with its atoms; update_errors one for every
    iteration, with the codes that the atoms were updated for.
    """

    A: np.ndarray
    Z: np.ndarray
    errors: list[float]
    update_errors: list[float]


def alternate(A, code, update, measure, n_iter, advance=None):
    """Codes, then n_iter times an update of atoms and new codes; the best atoms are returned.

    advance(A, earlier, Z, number) turns the atoms of sweep `number` into those that are coded with, and those that the
    next one takes for `earlier`, which are None in the first iteration and after the error has risen.
    """
    Z = code(A)
    errors, update_errors = [], []
    best, last, earlier = (A, Z), measure(A, Z), None
    for number in range(1, n_iter + 1):
        A, Z = update(Z, A)
        update_errors.append(measure(A, Z))
        if advance is not None:
            A, earlier = advance(A, earlier, Z, number)
        Z = code(A)
        errors.append(measure(A, Z))
        if errors[-1] > last:
            earlier = None
        last = errors[-1]
        if errors[-1] == min(errors):
            best = A, Z
    return Fit(*best, errors[: int(np.argmin(errors)) + 1], update_errors)


def momentum(F: np.ndarray, M: np.ndarray, *pursuit) -> Callable:
    """`advance` of atom_update="momentum": atoms go on by a share of their change, and useless ones are replaced."""

    def advance(A, earlier, Z, number):
        swept = A
        if earlier is not None:
            A = normalise(A + MOMENTUM * (A - earlier), M)
        if number in (2, 8):
            replaced, rows = replace_useless(A, F, M, *pursuit, number)
            A, swept = A.copy(), swept.copy()
            A[replaced] = swept[replaced] = rows
        return A, swept

    return advance


def learn(F, M, squared_norms, A0, n_nonzero_coefs, n_iter, kind, update, residual_tol, n_features):
    """Alternate atom update, normalisation and pursuit, after a first pursuit."""
    sweep, trace = SWEEPS[update], np.sum(squared_norms)

    def code(A):
        return encode(F, A, M, squared_norms, n_nonzero_coefs, residual_tol, kind)

    def measure(A, Z):
        return error(objective(trace, Z, F, A, M), len(F), n_features)

    advance = momentum(F, M, n_nonzero_coefs, residual_tol, kind) if update == "momentum" else None
    return alternate(normalise(A0, M), code, lambda Z, A: sweep(Z, F, A, M), measure, n_iter, advance)


def dl(Y, A0, n_nonzero_coefs, n_iter, kind="ols", update="gram", residual_tol=None):
    """Linear dictionary learning from the atoms A0 (n x m): features Y, metric the identity."""
    Y = np.asarray(Y, dtype=float)
    m = Y.shape[1]
    squared_norms = np.array([y @ y for y in Y])
    return learn(Y, np.eye(m), squared_norms, A0, n_nonzero_coefs, n_iter, kind, update, residual_tol, n_features=m)


def dl_observed(Y, known, A0, n_nonzero_coefs, n_iter, kind="ols"):
    """Linear dictionary learning from the known numbers: for the update, codes say what the others are."""
    m = Y.shape[1]

    def code(A):
        return encode_observed(Y, known, A, n_nonzero_coefs, kind)

    def update(Z, A):
        return gram_update(Z, np.where(known, Y, Z @ A), A, np.eye(m))

    def measure(A, Z):
        return error(np.sum(((Y - Z @ A) ** 2)[known]), len(Y), m)

    return alternate(normalise(A0, np.eye(m)), code, update, measure, n_iter)


def kdl(K, A0, n_nonzero_coefs, n_iter, kind="ols", update="gram", residual_tol=None, n_features=None):
    """Full kernel dictionary learning from the atoms A0 (n x N), with the N x N residual.

    n_features is the m of the error; without it, the N columns of K.
    """
    sweep = KDL_SWEEPS[update]
    N = len(K)
    m = N if n_features is None else n_features

    def code(A):
        return encode(K, A, K, np.diag(K), n_nonzero_coefs, residual_tol, kind)

    def measure(A, Z):
        return error(objective(np.trace(K), Z, K, A, K), N, m)

    advance = momentum(K, K, n_nonzero_coefs, residual_tol, kind) if update == "momentum" else None
    return alternate(normalise(A0, K), code, lambda Z, A: sweep(Z, A, K), measure, n_iter, advance)


def rkdl(
    Y,
    D,
    A0,
    n_nonzero_coefs,
    n_iter,
    kind="ols",
    update="gram",
    residual_tol=None,
    *,
    kernel="rbf",
    gamma=1.0,
    degree=3,
    coef0=1.0,
):
    """Reduced kernel dictionary learning (RKDL-D) from the atoms A0 (n x p), kernel vectors D (p x m) held."""
    F, M = features_and_metric(D, Y, kernel, gamma, degree, coef0)
    squared_norms = np.array([kernel_trace([y], kernel, gamma, degree, coef0) for y in Y])
    m = np.shape(Y)[1]
    return learn(F, M, squared_norms, A0, n_nonzero_coefs, n_iter, kind, update, residual_tol, n_features=m)
