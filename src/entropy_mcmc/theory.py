"""What can be computed with a pen: bounds of the paper's theorems, step sizes, stationary laws.

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
    check_choice,
    check_count,
    check_fraction,
    check_not_negative,
    check_positive,
)

# Dalalyan & Karagulyan round 7√2/6 = 1.6499 up.
_STEP_ERROR = 1.65


def joint_eigenvalues(m: float, M: float, eta: float) -> tuple[float, float]:
    """Smallest and largest eigenvalue of the joint Hessian (Lemma 2, corrected).

    A = [[Λ+cI, −cI], [−cI, cI]] with c = 1/η splits into 2×2 blocks, one per eigenvalue h of Λ,
    with eigenvalues (h + 2c ± √(h²+4c²))/2. Both grow with h, so the ends are taken at m and M.
    The printed lemma (m and M themselves) reduces rows, which does not keep eigenvalues.

    >>> low, high = joint_eigenvalues(1.0, 1.0, eta=1.0)
    >>> round(low, 3), round(high, 3)
    (0.382, 2.618)
    """
    c = 1 / check_positive("eta", eta)
    _check_curvature(m, M)
    # Product of a block's eigenvalues is h·c: dividing avoids the cancellation of h ≪ c.
    low = 2 * m * c / (m + 2 * c + math.hypot(m, 2 * c))
    return low, (M + 2 * c + math.hypot(M, 2 * c)) / 2


def max_step_size(M: float, eta: float, *, momentum: float = 0.0, rule: str = "euler") -> float:
    """The step size α at which the chain stops being stable; stay strictly below.

    Euler: α·λ_max < 2(1+μ), λ_max from `joint_eigenvalues`; without momentum this is αM < 2 and
    η > α(4−αM)/(4−2αM). `exact` and `gibbs` are stable for every η while αM < 2.

    >>> max_step_size(2.0, eta=1.0, rule="gibbs")
    1.0
    """
    check_choice("rule", rule, ("euler", "exact", "gibbs"))
    check_fraction("momentum", momentum)
    check_positive("M", M)
    if rule == "euler":
        return 2 * (1 + momentum) / joint_eigenvalues(M, M, eta)[1]
    if momentum:
        raise ConfigError(f"momentum must be 0 for rule={rule!r}, got momentum={momentum}")
    return 2 / M


def suggest_step_size(
    m: float, M: float, eta: float, *, bias: float = 0.05, momentum: float = 0.0
) -> float:
    """A step size α for the Euler rule: the largest whose variances are wrong by at most `bias`.

    Along a joint eigenvector of eigenvalue λ the stationary variance is too large by the factor
    1/(1 − αλ/(2(1+μ))), worst at λ_max. Setting this to 1 + bias gives
    α = 2(1+μ)·bias/((1+bias)·λ_max). Larger steps mix faster but sample a hotter law; smaller
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
    _check_step(alpha, 2 / high, "the chain diverges at 2/λ_max")
    return -1 / math.log(max(abs(1 - alpha * low), abs(1 - alpha * high)))


def theorem1_printed(
    m: float, M: float, eta: float, *, alpha: float, d: int, sigma: float, K: int, w2_start: float
) -> float:
    """Theorem 1 as printed: W2(μ_K, π_joint) of Entropy-MCMC.

    (1−αm)^K·W2(μ_0, π) + 1.65(M/m)√(2αd) + σ²√(2αd)/(1.65M + σ√m), for m ≤ 1/η ≤ M and
    α ≤ 2/(m+M). False: it rests on Lemma 2, and at its own limit the chain diverges.
    `w2_start` is read as W2(μ_0, π_joint), the only reading in which the dimensions agree.
    """
    _check_curvature(m, M)
    if not m <= 1 / check_positive("eta", eta) <= M:
        raise ConfigError(f"1/eta must be in [m, M] = [{m}, {M}] for Theorem 1, got eta={eta}")
    _check_step(alpha, 2 / (m + M), "Theorem 1 is printed for α ≤ 2/(m+M)")
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
    _check_step(alpha, 2 / (low + high), "Theorem 1 needs α ≤ 2/(λ_min+λ_max)")
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
    _check_step(run.alpha, 1 / steep, "Theorem 2 needs α ≤ (1+ηM)/M")
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
    _check_step(run.alpha, 2 / (flat + steep), "Theorem 3 needs α ≤ 2/(m_f+M_f)")
    outer = _langevin_bound(flat, steep, run.alpha, run.d, 0.0, run.K, w2_start)
    return outer + inner / (run.eta * flat)


class PairCovariance(NamedTuple):
    """Stationary second moments of one coordinate of (θ, θ_a)."""

    theta: float
    cross: float
    guide: float

    @property
    def difference(self) -> float:
        """Var(θ − θ_a), what the coupling thermometer reads."""
        return self.theta - 2 * self.cross + self.guide


def euler_covariance(
    alpha: float, h: float, eta: float, temperature: float = 1.0, gradient_variance: float = 0.0
) -> PairCovariance:
    """Stationary law of the paper's rule on curvature h: solves Σ = MΣMᵀ + Q exactly.

    With V = 0 it is T[A(I − αA/2)]⁻¹; the terms in V are the heat of mini-batch noise.

    >>> [round(x, 6) for x in euler_covariance(0.1, 1.0, 0.5)]
    [1.059603, 0.993377, 1.556291]
    """
    _check_step(alpha, max_step_size(h, eta), "the chain is unstable", strict=True)
    c, T, V = 1 / eta, temperature, gradient_variance
    D = 1 - alpha * (h + 2 * c) / 2 + alpha**2 * h * c / 4
    E = h + 2 * c - alpha * h * c
    heat = alpha * V / (4 * h * D * E)
    kept = 1 - alpha * c
    spread = h + c - alpha * (h * h + 2 * h * c + 2 * c * c) / 2
    return PairCovariance(
        T * kept / (h * D) + heat * kept * (2 * c + 2 * h - alpha * c * h),
        T * (1 - alpha * (h + 2 * c) / 2) / (h * D)
        + heat * c * (2 - 2 * alpha * c - 2 * alpha * h + alpha**2 * c * h),
        T * spread / (h * c * D) + heat * c * kept * (2 - alpha * h),
    )


def exact_covariance(
    alpha: float, h: float, eta: float, temperature: float = 1.0, gradient_variance: float = 0.0
) -> PairCovariance:
    """Stationary law of `guide_update="exact"`: gradient kick, then the exact coupled move."""
    _check_step(alpha, max_step_size(h, eta, rule="exact"), "αh must be below 2", strict=True)
    c, T, V = 1 / eta, temperature, gradient_variance
    e = math.exp(-2 * alpha * c)
    rest, rest2 = -math.expm1(-2 * alpha * c), -math.expm1(-4 * alpha * c)
    kick = alpha * h
    base = h * (rest + kick * e) * (4 * (1 + e) - kick * (1 + 3 * e))
    heat = 4 * c * (rest2 + kick * e * e) + h * rest2
    mixed = 4 * c * kick * e * (2 - kick) * (2 * e + 1) + rest2 * (8 * c - h * (2 - kick))
    turn = rest + kick * e * (2 - kick)
    return PairCovariance(
        T * heat / (c * base) + V * alpha * (rest2 + kick * e * (1 + 3 * e)) / base,
        T * mixed / (2 * c * base) + V * alpha * rest2 / base,
        T * turn * heat / (c * rest * base) + V * alpha * rest * (1 + e - kick * e) / base,
    )


def gibbs_covariance(
    alpha: float, h: float, eta: float, temperature: float = 1.0, gradient_variance: float = 0.0
) -> PairCovariance:
    """Stationary law of `guide_update="gibbs"`: SGLD hotter by 1+α/(2η), the guide adds ηT."""
    theta = sgld_variance(alpha, h, temperature * (1 + alpha / (2 * eta)), gradient_variance)
    return PairCovariance(theta, theta, theta + eta * temperature)


def momentum_covariance(
    alpha: float, h: float, eta: float, momentum: float, temperature: float = 1.0
) -> PairCovariance:
    """With momentum and exact gradients T[A(I − αA/(2(1+μ)))]⁻¹: Euler's law at α/(1+μ)."""
    return euler_covariance(alpha / (1 + check_fraction("momentum", momentum)), h, eta, temperature)


def sgld_variance(
    alpha: float,
    h: float,
    temperature: float = 1.0,
    gradient_variance: float = 0.0,
    momentum: float = 0.0,
) -> float:
    """SGLD (μ = 0) or SGHMC on curvature h: (T + αV/(2(1−μ)))/(h(1 − αh/(2(1+μ))))."""
    mu = check_fraction("momentum", momentum)
    _check_step(alpha, 2 * (1 + mu) / h, "the chain is unstable", strict=True)
    heat = temperature + alpha * gradient_variance / (2 * (1 - mu))
    return heat / (h * (1 - alpha * h / (2 * (1 + mu))))


def thermometer_factor(alpha: float, h: float, eta: float) -> float:
    """E‖θ−θ_a‖²/(dηT) of the Euler rule with exact gradients: 1/(1 − q(4−αh)/(4−2αh)), q = α/η.

    >>> round(thermometer_factor(0.1, 1.0, 0.5), 6)
    1.258278
    """
    check_not_negative("h", h)
    check_positive("eta", eta)
    loss = alpha / eta * (4 - alpha * h) / (4 - 2 * alpha * h) if alpha * h < 2 else math.inf
    if loss >= 1:
        raise ConfigError(f"alpha must be below the stable limit at h={h}, eta={eta}, got {alpha}")
    return 1 / (1 - loss)


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
    _check_curvature(run.m, run.M)
    _check_step(run.alpha, 2 / (run.m + run.M), "the theorem is printed for α ≤ 2/(m+M)")
    c = 1 / check_positive("eta", run.eta)
    rest = _langevin_bound(run.m + c, run.M + c, run.alpha, run.d, run.sigma, 0, 0.0)
    return (1 - run.alpha * run.m) ** run.L * run.kappa + rest


def _inner_corrected(run: NestedRun) -> float:
    """B of `theorem3_corrected`: how far the inner chain is from its target after L steps."""
    _check_curvature(run.m, run.M)
    low, high = run.m + 1 / check_positive("eta", run.eta), run.M + 1 / run.eta
    step = run.alpha if run.inner_alpha is None else run.inner_alpha
    _check_step(step, 2 / (low + high), "the inner chain needs a ≤ 2/(m+M+2/η)")
    return _langevin_bound(low, high, step, run.d, run.sigma / run.d**0.5, run.L, run.kappa)


def _flattened(run: NestedRun) -> tuple[float, float]:
    return run.m / (1 + run.eta * run.m), run.M / (1 + run.eta * run.M)


def _check_curvature(m: float, M: float) -> None:
    if check_positive("m", m) > check_positive("M", M):
        raise ConfigError(f"M must be at least m={m}, got M={M}; pass the curvatures as (m, M)")


def _check_step(alpha: float, limit: float, why: str, *, strict: bool = False) -> None:
    """Raise unless 0 < alpha ≤ limit (below it if `strict`), saying `why`."""
    check_positive("alpha", alpha)
    if alpha > limit or (strict and alpha >= limit):
        sign = "below" if strict else "at most"
        raise ConfigError(f"alpha must be {sign} {limit:.6g} ({why}), got alpha={alpha}")
