"""`Chains`: the draws that `run` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from entropy_mcmc.chains.row_layout import Tree
from entropy_mcmc.errors import ConfigError


@dataclass(frozen=True)
class Chains:
    """Draws as (chain, draw, …): a tensor, or a dict of them when the chain has several.

    `guide` is None for samplers without one. θ of several replicas is (chain, draw, replica, …).
    """

    theta: Tree
    guide: Tree | None

    def by_replica(self, replicas: int) -> Chains:
        """Draws whose rows are chains times replicas, taken apart; the guide of a chain is one."""
        if replicas == 1:
            return self
        assert self.guide is not None

        def apart(rows: Tensor) -> Tensor:
            return rows.reshape(-1, replicas, *rows.shape[1:]).transpose(1, 2)

        return Chains(_map(apart, self.theta), _map(lambda rows: rows[::replicas], self.guide))

    def to_arviz(self) -> Any:
        """An xarray DataTree with the group `posterior`, as arviz and arviz-stats read it.

        θ keeps its names ("theta" if it has none), θ_a gets the prefix "guide_" (or is "guide").
        """
        guides = {} if self.guide is None else _named(self.guide, "guide")
        variables = _named(self.theta, "theta") | guides
        return data_tree(posterior=variables)


def data_tree(**groups: dict[str, Tensor]) -> Any:
    """An xarray DataTree of these groups of draws, (chain, draw, …)."""
    for name in ("chain", "draw"):  # dimensions there: it would leave them out, without a word
        if any(name in draws for draws in groups.values()):
            raise ConfigError(
                f"to_arviz has dimensions chain and draw, got a parameter of the name {name!r}; "
                f"give it another name"
            )
    try:
        from arviz_base import from_dict
    except ImportError as error:
        raise ConfigError(
            "to_arviz needs arviz-base, which is not installed; pip install 'entropy-mcmc[arviz]'"
        ) from error
    return from_dict(
        {group: {k: v.cpu().numpy() for k, v in draws.items()} for group, draws in groups.items()}
    )


def _map(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    if isinstance(tree, Tensor):
        return function(tree)
    return {name: function(value) for name, value in tree.items()}


def _named(tree: Tree, name: str) -> dict[str, Tensor]:
    if isinstance(tree, Tensor):
        return {name: tree}
    return tree if name == "theta" else {f"{name}_{key}": value for key, value in tree.items()}
