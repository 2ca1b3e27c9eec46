"""`sample`: the posterior of a small Bayesian model, from its log density."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.chains import log_density as density_of
from entropy_mcmc.chains.density_checks import check_finite, check_functions, validation
from entropy_mcmc.chains.inputs import check_data, rows_per_step
from entropy_mcmc.chains.posterior_draws import PosteriorDraws
from entropy_mcmc.chains.propriety import check_dependence
from entropy_mcmc.chains.row_scaling import check_scaling
from entropy_mcmc.chains.transforms import Identity
from entropy_mcmc.chains.warm_up import Problem, warm_up, windows
from entropy_mcmc.errors import check_choice, check_count

JITTER = 0.1  # of the starts, in unconstrained coordinates
LOOKED_AT = 8  # draws of each chain whose gradient the diagnosis reads
LEAST_WARM_UP = 100


def sample(
    log_density: Callable[..., Tensor],
    init: Mapping[str, Any],
    *,
    data: Sequence[Any] = (),
    log_prior: Callable[..., Tensor] | None = None,
    transforms: Mapping[str, Identity] | None = None,
    batch_size: int | None = None,
    chains: int | None = 4,
    draws: int = 1000,
    warm_up_steps: int = 1000,
    thin: int = 10,
    seed: int | None = None,
    progress: bool = False,
    compile: bool | str = "auto",
) -> PosteriorDraws:
    """Draw the parameters of a model from its posterior, by BAOAB with all settings adapted.

    Args:
        log_density: `log_density(theta)` with theta a dict of named parameters; with data,
            `log_density(theta, *rows)`, the log likelihood of each of these rows, or their sum.
        init: A start by name: numbers, arrays or tensors, inside their ranges; with chains=None a
            start for each chain, as the first dimension.
        data: Tensors or arrays of equal first dimension.
        log_prior: `log_prior(theta)`, added once; needed beside data, or the prior is flat.
        transforms: By name, for parameters that are not free: `transforms.positive()`, `above(a)`,
            `between(a, b)`. The log density is one of θ, as written; Jacobians are added.
        batch_size: Rows of a mini-batch; None takes all. The step is lowered until the noise of
            mini-batches adds at most 5 % to a variance, of correlated parameters and of predictions
            too, as far as 4,096 sampled gradients tell.
        chains: Number of chains.
        draws: Draws kept of each chain.
        warm_up_steps: Steps in which preconditioner, step size and momentum adapt; then they stay.
        thin: Steps, each with one gradient of a mini-batch or of all rows, between two draws.
        seed: Of starts, noise and batches; None draws one.
        progress: Show a progress bar.
        compile: Compile the steps of the draws: True, False, or "auto", from 20,000 of them on.

    Raises:
        NonFiniteError: a chain or a log density is not finite; the message names where.

    >>> draws = sample(lambda t: -0.5 * ((t["x"] - 3) / 2) ** 2, {"x": 0.0}, seed=0, draws=500)
    >>> draws["x"].shape, abs(draws["x"].mean() - 3) < 0.4, abs(draws["x"].std() - 2) < 0.3
    (torch.Size([4, 500]), tensor(True), tensor(True))
    """
    check_count("draws", draws)
    check_count("thin", thin)
    check_count("warm_up_steps", warm_up_steps, least=LEAST_WARM_UP)
    check_choice("compile", compile, (True, False, "auto"))
    parts = check_data(data)
    rows_per_step(parts, batch_size)
    seed = noise.check_seed(seed)
    density, states = density_of.build(
        log_density, log_prior, init, chains, transforms or {}, parts
    )
    with validation(False):
        check_functions(density, states[0])
        check_finite(density, states, "at init")
    with validation(True):
        density.of_row(states[0])  # torch.distributions refuses data out of range
    with validation(False):
        states = _apart(density, states, seed)
        check_scaling(density, states, batch_size, seed)
        check_dependence(density, states)
        problem = Problem(density, batch_size, seed)
        steps = draws * thin
        with closing(_bar(progress, sum(windows(warm_up_steps)) + steps)) as bar:
            tuning, states = warm_up(problem, states, warm_up_steps, bar.update, compile)
            options = {"thin": thin, "burn_in": thin - 1, "tell": bar.update}
            how = "steps" if compile is True else compile
            kept = problem.window(states, tuning, steps, 0, compile=how, **options)
        values = check_finite(density, kept.flatten(0, 1), "at a draw")
        at = tuple(int(i) for i in torch.linspace(0, draws - 1, min(LOOKED_AT, draws)).tolist())
        looked_at = kept[:, list(at)].flatten(0, 1)
        slopes = density.slopes(torch.ones_like(tuning.scale))(looked_at)
        others = density.count.rows / ((batch_size or density.num_data) * len(states))
        return PosteriorDraws(
            parameters=density.constrained(kept),
            log_density=values.reshape(kept.shape[:2]),
            tuning=tuning,
            gradients=sum(windows(warm_up_steps)) + steps + math.ceil(others),
            unconstrained=kept,
            slopes=slopes.reshape(len(kept), len(at), -1),
            slopes_at=at,
        )


def _apart(density: density_of.LogDensity, states: Tensor, seed: int) -> Tensor:
    """Starts moved apart, so that R-hat has something to compare; at `init` where that fails."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    away = JITTER * torch.randn(states.shape, generator=generator, dtype=states.dtype)
    moved = states + away
    fine = density.at(moved).isfinite()
    return torch.where(fine[:, None], moved, states)


def _bar(progress: bool, total: int) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, unit="step", disable=not progress, desc="chains")
