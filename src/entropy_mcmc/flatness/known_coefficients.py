r"""Learning coefficients that are known in closed form: references for the estimator.

The learning coefficient λ and its multiplicity m describe the volume of parameters that are almost
as good as the best one: :math:`V(\epsilon) \propto \epsilon^\lambda (-\log\epsilon)^{m-1}` for a
loss less than ε above its minimum. A regular model of d parameters has λ = d/2, m = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from entropy_mcmc.errors import ConfigError, check_count


class Coefficient(NamedTuple):
    """λ and its multiplicity m."""

    value: float
    multiplicity: int


def normal_crossing_coefficient(exponents: Sequence[int]) -> Coefficient:
    r"""The loss :math:`\prod_j w_j^{2k_j}` at the origin: λ = min 1/(2k_j), m = how many attain it.

    A coordinate with k_j = 0 does not enter the loss.

    >>> normal_crossing_coefficient([1, 1])
    Coefficient(value=0.5, multiplicity=2)
    """
    powers = [check_count("exponents", k, least=0) for k in exponents]
    largest = max(powers, default=0)
    if largest == 0:
        raise ConfigError(
            f"exponents must hold at least one positive number, got {list(exponents)}; "
            "a constant loss has no learning coefficient"
        )
    return Coefficient(1 / (2 * largest), powers.count(largest))


def linear_network_coefficient(inputs: int, outputs: int, hidden: int, rank: int) -> Coefficient:
    r"""A two-layer linear network BA whose true map has the given rank (Aoyagi & Watanabe, 2005).

    With M inputs, N outputs, H hidden units and rank r:

    * M + H < N + r: λ = (HM − Hr + Nr)/2,
    * N + H < M + r: λ = (HN − Hr + Mr)/2,
    * M + N < H + r: λ = MN/2,
    * else :math:`8\lambda = 2(H+r)(M+N) + 2MN - (H+r)^2 - M^2 - N^2`, plus 1 where M + N + H + r is
      odd.

    m = 2 in that odd case, else 1. The value belongs to the deepest singularity of the true set:
    H − r hidden units with weights of zero on both sides.

    >>> linear_network_coefficient(2, 2, 2, 0), linear_network_coefficient(5, 5, 3, 1).value
    (Coefficient(value=1.5, multiplicity=1), 8.0)
    """
    m, n = check_count("inputs", inputs), check_count("outputs", outputs)
    h, r = check_count("hidden", hidden), check_count("rank", rank, least=0)
    if r > min(m, n, h):
        raise ConfigError(
            f"rank must be at most {min(m, n, h)}, the smallest width of the network, got rank={r}"
        )
    if m + h < n + r:
        return Coefficient((h * m - h * r + n * r) / 2, 1)
    if n + h < m + r:
        return Coefficient((h * n - h * r + m * r) / 2, 1)
    if m + n < h + r:
        return Coefficient(m * n / 2, 1)
    odd = (m + n + h + r) % 2
    total = 2 * (h + r) * (m + n) + 2 * m * n - (h + r) ** 2 - m**2 - n**2
    return Coefficient((total + odd) / 8, 1 + odd)
