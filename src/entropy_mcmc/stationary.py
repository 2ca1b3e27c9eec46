"""Stationary second moments of the samplers on a quadratic energy, in closed form.

Scalars only, in units of the full energy: `alpha` = lr/N, h the curvature of U,
`gradient_variance` V = N²·Var(ĝ) per coordinate.
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
    check_curvature(m, M)
    # Product of a block's eigenvalues is h·c: dividing avoids the cancellation of h ≪ c.
    low = 2 * m * c / (m + 2 * c + math.hypot(m, 2 * c))
    return low, (M + 2 * c + math.hypot(M, 2 * c)) / 2


def max_step_size(M: float, eta: float, *, momentum: float = 0.0, rule: str = "euler") -> float:
    """The step size α at which the chain stops being stable; stay strictly below.

    Euler: α·λ_max < 2(1+μ), λ_max from `joint_eigenvalues`; without momentum this is αM < 2 and
    η > α(4−αM)/(4−2αM). `exact` and `gibbs` are stable for every η while αM < 2, `collapsed` while
    αM < 2(1+μ). The integrators "lm" and "baoab" have the limits of Euler.

    >>> max_step_size(2.0, eta=1.0, rule="gibbs")
    1.0
    """
    check_choice("rule", rule, ("euler", "exact", "gibbs", "collapsed"))
    check_fraction("momentum", momentum)
    check_positive("M", M)
    if rule == "euler":
        return 2 * (1 + momentum) / joint_eigenvalues(M, M, eta)[1]
    if rule == "collapsed":
        return 2 * (1 + momentum) / M
    if momentum:
        raise ConfigError(f"momentum must be 0 for rule={rule!r}, got momentum={momentum}")
    return 2 / M


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
    """Stationary covariance of the paper's rule on curvature h: solves Σ = MΣMᵀ + Q exactly.

    One step of z = (θ, θ_a) is z ← (I − αA)z + √(2αT)ε, with A = [[h+c, −c], [−c, c]], c = 1/η.
    Σ is the sum over k ≥ 0 of 2αT(I − αA)^{2k}, so it commutes with A, and Σ = (I−αA)²Σ + 2αT·I
    becomes αA(2I − αA)Σ = 2αT·I: Σ = T[A(I − αA/2)]⁻¹. Since det A = hc, its entries have the
    denominator hcD, D = det(I − αA/2) = 1 − α(h+2c)/2 + α²hc/4.

    Mini-batch noise −αξ of θ, Var ξ = V, adds X = (I−αA)X(I−αA) + α²V·e₁e₁ᵀ, linear in the three
    entries of X. Between eigenvectors of A with the eigenvalues λ and λ′ the entry of α²V·e₁e₁ᵀ
    is divided by 1 − (1−αλ)(1−αλ′): by αE, E = h + 2c − αhc, for the two different ones, and by
    αλ(2−αλ), whose product is 4α²hcD, for equal ones. So X has the denominator 4hDE (c cancels).

    >>> [round(x, 6) for x in euler_covariance(0.1, 1.0, 0.5)]
    [1.059603, 0.993377, 1.556291]
    """
    check_step(alpha, max_step_size(h, eta), "the chain is unstable", strict=True)
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
    """Covariance of `guide_update="exact"`: gradient kick, then the exact coupled move.

    With k = αh, e = e^{−2αc}, c = 1/η, and (P, C, R) for the variance of θ, the covariance and the
    variance of θ_a. The kick θ ← (1−k)θ − αξ, Var ξ = V, makes of them P′ = (1−k)²P + α²V,
    C′ = (1−k)C and R′ = R. The move takes s = (θ+θ_a)/2 and δ = θ−θ_a apart:
    Var s = (P′+2C′+R′)/4 + αT, Var δ = e²(P′−2C′+R′) + (T/c)(1−e²), Cov(s, δ) = e(P′−R′)/2.
    With θ = s+δ/2 and θ_a = s−δ/2, a stationary chain has

        P = Var s + Var δ/4 + Cov(s, δ),  C = Var s − Var δ/4,  R = Var s + Var δ/4 − Cov(s, δ).

    What is computed is the solution of these three linear equations, by Cramer's rule: their
    determinant is −k(1−e)/4 times (1−e+ke)(4(1+e) − k(1+3e)), which is positive for k < 2.

    >>> [round(x, 4) for x in exact_covariance(1e-6, 1.0, 0.5)]
    [1.0, 1.0, 1.5]
    """
    check_step(alpha, max_step_size(h, eta, rule="exact"), "αh must be below 2", strict=True)
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
    """Covariance of `guide_update="gibbs"`: SGLD hotter by 1+α/(2η), the guide adds ηT.

    The old θ_a is θ + √(ηT)ξ with a ξ of its own, so that the pull −(α/η)(θ−θ_a) of the next step
    is noise of variance (α/η)²·ηT. With that of the step, 2αT, it is 2α·T(1 + α/(2η)).
    """
    theta = sgld_variance(alpha, h, temperature * (1 + alpha / (2 * eta)), gradient_variance)
    return PairCovariance(theta, theta, theta + eta * temperature)


def momentum_covariance(
    alpha: float, h: float, eta: float, momentum: float, temperature: float = 1.0
) -> PairCovariance:
    """Covariance with momentum and exact gradients, T[A(I − αA/(2(1+μ)))]⁻¹: Euler's at α/(1+μ).

    Along an eigenvector of A, eigenvalue a, v ← μv − αaz + σε and z ← z + v, σ² = 2αT(1−μ). Write
    S, C, W for Var z, Cov(z, v), Var v of a stationary chain. Its last z is z − v: so C = W/2. The
    new z and v have the covariance C = μC − αaS + W, so that αaS = W(1+μ)/2. The new v has the
    variance W = μ²W − 2μαaC + α²a²S + σ², that is W(1−μ)(1+μ − αa/2) = σ². Together,
    S = T/(a(1 − αa/(2(1+μ)))).
    """
    return euler_covariance(alpha / (1 + check_fraction("momentum", momentum)), h, eta, temperature)


def averaged_covariance(
    alpha: float,
    h: float,
    eta: float,
    temperature: float = 1.0,
    gradient_variance: float = 0.0,
    momentum: float = 0.0,
) -> PairCovariance:
    """Both by the integrator "lm" (μ = 0) or "baoab": T·A⁻¹ at every stable α, with V = 0.

    A⁻¹ = [[1/h, 1/h], [1/h, 1/h + η]]; the derivation is in `samplers/sghmc.py`. Mini-batch noise
    passes through the same drift as that of the Euler rule; with momentum its part is not known in
    closed form here.

    >>> averaged_covariance(0.1, 1.0, 0.5)
    PairCovariance(theta=1.0, cross=1.0, guide=1.5)
    """
    limit = max_step_size(h, eta, momentum=momentum)
    check_step(alpha, limit, "the chain is unstable", strict=True)
    if momentum and gradient_variance:
        raise ConfigError(
            f"gradient_variance must be 0 with momentum={momentum}, got {gradient_variance}"
        )
    theta = temperature / h
    target = PairCovariance(theta, theta, theta + eta * temperature)
    if not gradient_variance:
        return target
    heat = euler_covariance(alpha, h, eta, 0.0, gradient_variance)
    return PairCovariance(*(a + b for a, b in zip(target, heat, strict=True)))


def collapsed_covariance(
    alpha: float,
    h: float,
    eta: float,
    temperature: float = 1.0,
    gradient_variance: float = 0.0,
    momentum: float = 0.0,
    integrator: str = "euler",
) -> PairCovariance:
    """`guide_update="collapsed"`: θ as without a guide, θ_a adds ηT."""
    check_choice("integrator", integrator, ("euler", "lm", "baoab"))
    variance = sgld_variance if integrator == "euler" else averaged_variance
    theta = variance(alpha, h, temperature, gradient_variance, momentum)
    return PairCovariance(theta, theta, theta + eta * temperature)


def averaged_variance(
    alpha: float,
    h: float,
    temperature: float = 1.0,
    gradient_variance: float = 0.0,
    momentum: float = 0.0,
) -> float:
    """θ alone by "lm" (μ = 0) or "baoab": T/h + αV/(2(1−μ)h(1 − αh/(2(1+μ)))).

    >>> averaged_variance(0.5, 2.0)
    0.5
    """
    return temperature / h + sgld_variance(alpha, h, 0.0, gradient_variance, momentum)


class ReplicaCovariance(NamedTuple):
    """Stationary second moments of one coordinate of y replicas and their guide.

    Attributes:
        theta: Var θ_i.
        between: Cov(θ_i, θ_j) of two replicas.
        cross: Cov(θ_i, θ_a).
        guide: Var θ_a.
        mean: Variance of the replicas' mean.
    """

    theta: float
    between: float
    cross: float
    guide: float
    mean: float

    @property
    def difference(self) -> float:
        """Var(mean θ_i − θ_a), what the coupling thermometer reads."""
        return self.mean - 2 * self.cross + self.guide


def replica_covariance(
    alpha: float,
    h: float,
    eta: float,
    replicas: int,
    temperature: float = 1.0,
    momentum: float = 0.0,
    integrator: str = "euler",
) -> ReplicaCovariance:
    """Y replicas and their guide on curvature h: T[A(I − αA/(2(1+μ)))]⁻¹, or T·A⁻¹.

    The second is that of "lm" and "baoab". A is the Hessian of Σ U(θ_i) + Σ ‖θ_i−θ_a‖²/(2η): h+c
    for each replica, yc for the guide and −c between, c = 1/η. All y+1 variables move from the old
    values with noise of their own, which is z ← (I − αA)z + √(2αT)ε as for the pair: what is
    derived in `euler_covariance` and `momentum_covariance` holds along each eigenvector of A.

    A maps a difference of replicas x (Σ x_i = 0, x_a = 0) to (h+c)x. The vector with m/√y for all
    replicas and g for the guide it maps to ((h+c)m − √y·c·g)/√y and yc·g − √y·c·m: of
    (√y·mean θ_i, θ_a) it is [[h+c, −√y·c], [−√y·c, yc]].

    >>> one, pair = replica_covariance(0.1, 1.0, 0.5, 1), euler_covariance(0.1, 1.0, 0.5)
    >>> round(one.guide - pair.guide, 9), round(one.cross - pair.cross, 9)
    (0.0, 0.0)
    """
    check_choice("integrator", integrator, ("euler", "lm", "baoab"))
    y, c = check_count("replicas", replicas), 1 / check_positive("eta", eta)
    trace, det = h + c + y * c, check_positive("h", h) * y * c
    largest = (trace + math.sqrt(trace * trace - 4 * det)) / 2
    rate = alpha / (1 + check_fraction("momentum", momentum))
    check_step(rate, 2 / largest, "the chain is unstable", strict=True)
    lag = rate if integrator == "euler" else 0.0

    def variance(a: float) -> float:
        return temperature / (a * (1 - lag * a / 2))

    # Of A(I − lag·A/2) = A − lag·A²/2, inverted.
    first, off, last = h + c, -math.sqrt(y) * c, y * c
    squares = first * first + off * off, off * (first + last), off * off + last * last
    p, q, r = (a - lag * b / 2 for a, b in zip((first, off, last), squares, strict=True))
    scale = temperature / (p * r - q * q)
    mean, apart = scale * r / y, variance(first)
    return ReplicaCovariance(
        theta=mean + apart * (1 - 1 / y),
        between=mean - apart / y,
        cross=-scale * q / math.sqrt(y),
        guide=scale * p,
        mean=mean,
    )


def minibatch_heat(alpha: float, h: float, eta: float, gradient_variance: float) -> float:
    """Temperature that mini-batch noise adds to θ of the Euler rule on curvature h.

    (αV/2)·(h+c−αhc/2)/(h+2c−αhc) with c = 1/η: the part of `euler_covariance(...).theta` in V
    over that per unit of T. It is αV/4 in directions much flatter than 1/η, where the pair
    (θ, θ_a) moves like one particle of twice the mass, and αV/2, as of SGLD, in much stiffer ones.

    >>> round(minibatch_heat(0.01, 1e-6, 0.1, 40.0), 4), round(minibatch_heat(0.01, 90, 1.0, 40), 4)
    (0.1, 0.1988)
    """
    c = 1 / check_positive("eta", eta)
    share = (h + c - alpha * h * c / 2) / (h + 2 * c - alpha * h * c)
    return alpha * gradient_variance / 2 * share


def sgld_variance(
    alpha: float,
    h: float,
    temperature: float = 1.0,
    gradient_variance: float = 0.0,
    momentum: float = 0.0,
) -> float:
    """SGLD (μ = 0) or SGHMC on curvature h: (T + αV/(2(1−μ)))/(h(1 − αh/(2(1+μ)))).

    The derivation in `momentum_covariance`, with a = h and σ² = 2αT(1−μ) + α²V. At μ = 0 it is
    Var θ = (1−αh)²·Var θ + 2αT + α²V.
    """
    mu = check_fraction("momentum", momentum)
    check_step(alpha, 2 * (1 + mu) / h, "the chain is unstable", strict=True)
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


def check_curvature(m: float, M: float) -> None:
    """Raise unless 0 < m ≤ M."""
    if check_positive("m", m) > check_positive("M", M):
        raise ConfigError(f"M must be at least m={m}, got M={M}; pass the curvatures as (m, M)")


def check_step(alpha: float, limit: float, why: str, *, strict: bool = False) -> None:
    """Raise unless 0 < alpha ≤ limit (below it if `strict`), saying `why`."""
    check_positive("alpha", alpha)
    if alpha > limit or (strict and alpha >= limit):
        sign = "below" if strict else "at most"
        raise ConfigError(f"alpha must be {sign} {limit:.6g} ({why}), got alpha={alpha}")
