"""What can be computed with a pen: bounds of the paper's theorems, step sizes, variances.

Scalars only. Everything is in units of the full energy: `alpha` = lr/N, curvatures are those
of U, `gradient_variance` V = N²·Var(ĝ) per coordinate. The theorems are stated at temperature 1
for an energy with m·I ≤ ∇²U ≤ M·I and E‖∇U − ∇U_batch‖² ≤ σ². Each comes twice: `_printed` is
the paper's formula, `_corrected` what its proof gives when the slips are removed. Both refuse
step sizes for which they claim nothing.

Lemma A, used by every bound (Dalalyan & Karagulyan 2019, Theorem 4). Langevin steps of size
α ≤ 2/(m+M) in p dimensions, gradient errors of bias ≤ b and variance ≤ s²·p, satisfy
    W2(μ_K, π) ≤ (1−αm)^K·W2(μ_0, π) + 1.65·(M/m)·√(αp) + b/m + s²·√(αp)/(1.65·M + s·√m).
Proof: drive chain and diffusion by the same noise. One exact gradient step contracts their
distance by 1−αm; the diffusion leaves the step by at most C = (7√2/6)·M·√(α³p) + αb in L2; the
zero-mean error adds B² = α²s²p to the square. x' ² ≤ ((1−αm)x + C)² + B² unrolls to
x_K ≤ (1−αm)^K·x_0 + C/(αm) + B²/(C + B·√(αm)), and 7√2/6 < 1.65.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from entropy_mcmc.errors import (
    ConfigError,
    check_count,
    check_fraction,
    check_not_negative,
    check_positive,
)
from entropy_mcmc.stationary import (
    PairCovariance,
    ReplicaCovariance,
    averaged_covariance,
    averaged_variance,
    check_curvature,
    check_step,
    collapsed_covariance,
    euler_covariance,
    exact_covariance,
    gibbs_covariance,
    joint_eigenvalues,
    max_step_size,
    minibatch_heat,
    momentum_covariance,
    replica_covariance,
    sgld_variance,
    thermometer_factor,
)

__all__ = [
    "NestedRun",
    "PairCovariance",
    "ReplicaCovariance",
    "averaged_covariance",
    "averaged_variance",
    "collapsed_covariance",
    "euler_covariance",
    "exact_covariance",
    "gibbs_covariance",
    "joint_eigenvalues",
    "max_step_size",
    "minibatch_heat",
    "momentum_covariance",
    "relaxation_steps",
    "replica_covariance",
    "sgld_variance",
    "suggest_step_size",
    "theorem1_corrected",
    "theorem1_printed",
    "theorem2_corrected",
    "theorem2_printed",
    "theorem3_corrected",
    "theorem3_printed",
    "thermometer_factor",
]

# Dalalyan & Karagulyan round 7√2/6 = 1.6499 up.
_STEP_ERROR = 1.65


def suggest_step_size(
    m: float, M: float, eta: float, *, bias: float = 0.05, momentum: float = 0.0
) -> float:
    """A step size α for the Euler rule: the largest whose variances are wrong by at most `bias`.

    Along a joint eigenvector of eigenvalue λ the stationary variance is too large by the factor
    1/(1 − αλ/(2(1+μ))), worst at λ_max. Setting this to 1 + bias gives
    α = 2(1+μ)·bias/((1+bias)·λ_max). Larger steps mix faster but sample hotter; smaller
    ones only cost time. The result is capped at 2/(λ_min+λ_max), beyond which Theorem 1 is
    silent. As lr of the mean loss this is α·N.

    >>> round(suggest_step_size(1.0, 10.0, eta=0.5), 5)
    0.00769
    """
    check_positive("bias", bias)
    low, high = joint_eigenvalues(m, M, eta)
    wanted = 2 * (1 + check_fraction("momentum", momentum)) * bias / ((1 + bias) * high)
    return min(wanted, 2 / (low + high))


def relaxation_steps(m: float, M: float, eta: float, alpha: float) -> float:
    """Steps in which the slowest mean of the Euler chain shrinks by e: −1/log max|1−αλ|."""
    low, high = joint_eigenvalues(m, M, eta)
    check_step(alpha, 2 / high, "the chain diverges at 2/λ_max")
    return -1 / math.log(max(abs(1 - alpha * low), abs(1 - alpha * high)))


def theorem1_printed(
    m: float, M: float, eta: float, *, alpha: float, d: int, sigma: float, K: int, w2_start: float
) -> float:
    """Theorem 1 as printed: W2(μ_K, π_joint) of Entropy-MCMC.

    (1−αm)^K·W2(μ_0, π) + 1.65(M/m)√(2αd) + σ²√(2αd)/(1.65M + σ√m), for m ≤ 1/η ≤ M and
    α ≤ 2/(m+M). False: it rests on Lemma 2, and at its own limit the chain diverges.
    `w2_start` is read as W2(μ_0, π_joint), the only reading in which the dimensions agree.
    """
    check_curvature(m, M)
    if not m <= 1 / check_positive("eta", eta) <= M:
        raise ConfigError(f"1/eta must be in [m, M] = [{m}, {M}] for Theorem 1, got eta={eta}")
    check_step(alpha, 2 / (m + M), "Theorem 1 is printed for α ≤ 2/(m+M)")
    return _langevin_bound(m, M, alpha, 2 * d, sigma, K, w2_start)


def theorem1_corrected(
    m: float, M: float, eta: float, *, alpha: float, d: int, sigma: float, K: int, w2_start: float
) -> float:
    """Theorem 1 corrected: W2(μ_K, π_joint) of Entropy-MCMC, for every η.

    (1−αλ_min)^K·W2(μ_0, π_joint) + 1.65(λ_max/λ_min)√(2αd) + s²√(2αd)/(1.65λ_max + s√λ_min)
    with s² = σ²/(2d) and α ≤ 2/(λ_min+λ_max).
    Proof: Lemma A in p = 2d dimensions with the constants of `joint_eigenvalues`. The coupling is
    known exactly, so the gradient error has total variance σ², σ²/(2d) per coordinate, no bias.
    """
    low, high = joint_eigenvalues(m, M, eta)
    check_step(alpha, 2 / (low + high), "Theorem 1 needs α ≤ 2/(λ_min+λ_max)")
    return _langevin_bound(low, high, alpha, 2 * d, sigma / math.sqrt(2 * d), K, w2_start)


class NestedRun(NamedTuple):
    """A run of Entropy-SGD or Entropy-SGLD: K outer steps, each with L inner steps.

    `kappa` bounds W2 from the inner start to its target; `inner_alpha` is `alpha` if None.
    """

    m: float
    M: float
    eta: float
    alpha: float
    d: int
    sigma: float
    K: int
    L: int
    kappa: float
    inner_alpha: float | None = None


def theorem2_printed(run: NestedRun, gap_start: float) -> float:
    """Theorem 2 as printed: E f_flat(θ_K) − min f_flat of Entropy-SGD.

    (1 − αm/(1+ηM))^K·E_0 + A(1+ηM)/(2m), A² as in Theorem 3, α ≤ 2/(m+M). False: A stands for
    A², and the slips of Theorem 3 (1/η, the squared distance) are in A.
    """
    flat = run.m / (1 + run.eta * run.M)
    return (1 - run.alpha * flat) ** run.K * gap_start + math.sqrt(_inner_printed(run)) / (2 * flat)


def theorem2_corrected(run: NestedRun, gap_start: float) -> float:
    """Theorem 2 corrected: E f_flat(θ_K) − min f_flat of Entropy-SGD.

    (1−αm_f)^K·E_0 + (B/η)²/(2m_f), with B, m_f, M_f of `theorem3_corrected`, for α ≤ 1/M_f and
    an inner step of at most 2/(m+M+2/η).
    Proof: the outer gradient g errs by at most B/η. With α ≤ 1/M_f smoothness gives
    f(θ−αg) ≤ f − (α/2)‖∇f‖² + (α/2)‖g−∇f‖², and strong convexity ‖∇f‖² ≥ 2m_f·(f − f*). So
    E_{k+1} ≤ (1−αm_f)·E_k + (α/2)(B/η)², and the sum of the geometric series is the claim.
    """
    inner = _inner_corrected(run)
    flat, steep = _flattened(run)
    check_step(run.alpha, 1 / steep, "Theorem 2 needs α ≤ (1+ηM)/M")
    return (1 - run.alpha * flat) ** run.K * gap_start + (inner / run.eta) ** 2 / (2 * flat)


def theorem3_printed(run: NestedRun, w2_start: float) -> float:
    """Theorem 3 as printed: W2(ν_K, π_flat) of Entropy-SGLD.

    (1−αm)^K·W2(ν_0, π_flat) + 1.65(1+ηM)/(1+ηm)·(M/m)√(αd) + A(1+ηM)/m for α ≤ 2/(m+M), where
    A² = (1−αm)^L·κ + 1.65(M+c)/(m+c)·√(αd) + σ²√(αd)/(1.65(M+c) + σ√(m+c)), c = 1/η.
    False: π_flat contracts at m/(1+ηm), not m; the bias is bounded by W2, not by its root; the
    outer gradient (θ − E θ′)/η lost its 1/η; the inner chain may diverge at this α.
    """
    error = math.sqrt(_inner_printed(run)) * (1 + run.eta * run.M) / run.m
    ratio = (1 + run.eta * run.M) / (1 + run.eta * run.m) * run.M / run.m
    step = _STEP_ERROR * ratio * math.sqrt(run.alpha * run.d)
    return (1 - run.alpha * run.m) ** run.K * w2_start + step + error


def theorem3_corrected(run: NestedRun, w2_start: float) -> float:
    """Theorem 3 corrected: W2(ν_K, π_flat) of Entropy-SGLD.

    (1−αm_f)^K·W2(ν_0, π_flat) + 1.65(M_f/m_f)√(αd) + B/(η·m_f), α ≤ 2/(m_f+M_f), with
    m_f = m/(1+ηm), M_f = M/(1+ηM), and for an inner step a ≤ 2/(m+M+2c), c = 1/η, s² = σ²/d,
    B = (1−a(m+c))^L·κ + 1.65(M+c)/(m+c)·√(ad) + s²√(ad)/(1.65(M+c) + s√(m+c)).
    Proof: the inner target π′ has Hessian between m+c and M+c, so B ≥ W2(ζ_L, π′) by Lemma A.
    ∇f_flat = c(θ − E_π′θ′) and ∇²f_flat = cI − c²Cov_π′(θ′); Brascamp–Lieb (Cov ≤ 1/(m+c)) and
    Cramér–Rao (Cov ≥ 1/(M+c)) put it between m_f and M_f. A difference of means is at most W2,
    so the outer gradient has bias ≤ c·B and, the mean over ζ_L being exact as the paper assumes,
    no variance. Lemma A again. κ may be the root mean square of W2(ζ_0, π′) over θ.
    """
    inner = _inner_corrected(run)
    flat, steep = _flattened(run)
    check_step(run.alpha, 2 / (flat + steep), "Theorem 3 needs α ≤ 2/(m_f+M_f)")
    outer = _langevin_bound(flat, steep, run.alpha, run.d, 0.0, run.K, w2_start)
    return outer + inner / (run.eta * flat)


def _langevin_bound(
    m: float, M: float, alpha: float, p: int, s: float, K: int, w2_start: float
) -> float:
    """Lemma A without bias: contraction, step error, gradient noise."""
    check_count("K", K, least=0)
    check_not_negative("w2_start", w2_start)
    noise = s**2 / (_STEP_ERROR * M + s * math.sqrt(m))
    return (1 - alpha * m) ** K * w2_start + (_STEP_ERROR * M / m + noise) * math.sqrt(alpha * p)


def _inner_printed(run: NestedRun) -> float:
    """A² of Theorems 2 and 3 as printed."""
    check_curvature(run.m, run.M)
    check_step(run.alpha, 2 / (run.m + run.M), "the theorem is printed for α ≤ 2/(m+M)")
    c = 1 / check_positive("eta", run.eta)
    rest = _langevin_bound(run.m + c, run.M + c, run.alpha, run.d, run.sigma, 0, 0.0)
    return (1 - run.alpha * run.m) ** run.L * run.kappa + rest


def _inner_corrected(run: NestedRun) -> float:
    """B of `theorem3_corrected`: how far the inner chain is from its target after L steps."""
    check_curvature(run.m, run.M)
    low, high = run.m + 1 / check_positive("eta", run.eta), run.M + 1 / run.eta
    step = run.alpha if run.inner_alpha is None else run.inner_alpha
    check_step(step, 2 / (low + high), "the inner chain needs a ≤ 2/(m+M+2/η)")
    return _langevin_bound(low, high, step, run.d, run.sigma / run.d**0.5, run.L, run.kappa)


def _flattened(run: NestedRun) -> tuple[float, float]:
    return run.m / (1 + run.eta * run.m), run.M / (1 + run.eta * run.M)
