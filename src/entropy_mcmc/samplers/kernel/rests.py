"""Rests: what rules that average noise must know of a parameter that a step passed over.

Such a rule puts half of a number of the noise into one move of a parameter and half into its next
(`sgld.py`). The number that a move begins is that of the step after it, so that nothing is kept
while a parameter moves at every step. One without a gradient rests, as in torch; until it moves
again, the group entry `rests` has the number of which half is left. An entry is a list of the
replica (0 where there is one), the position in the group, and the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

RESTS = "rests"


def by_number_left(
    group: dict[str, Any], moving: Sequence[Tensor], replica: int = 0
) -> dict[int | None, list[Tensor]]:
    """The parameters that move now, by the number of which half is left; notes those that rest.

    None is the number of this step: that of parameters that moved at the last one.
    """
    if RESTS not in group and len(moving) == len(group["params"]):
        return {None: list(moving)}
    entries = group.get(RESTS, [])
    left = {place: number for own, place, number in entries if own == replica}
    places = {param: i for i, param in enumerate(group["params"])}
    resting = sorted(set(places.values()) - {places[param] for param in moving})
    noted = [[replica, place, left.get(place, group["step"])] for place in resting]
    # A new list: state dicts may hold the old one.
    group[RESTS] = sorted([*(entry for entry in entries if entry[0] != replica), *noted])
    parts: dict[int | None, list[Tensor]] = {}
    for param in moving:
        parts.setdefault(left.get(places[param]), []).append(param)
    return parts


def rests_of(group: dict[str, Any], replica: int) -> Tensor:
    """The number that each parameter of a replica has half left of, −1 where it has none."""
    params: list[Tensor] = group["params"]
    row = torch.full((len(params),), -1, dtype=torch.int64, device=params[0].device)
    for own, place, number in group.get(RESTS, []):
        if own == replica:
            row[place] = number
    return row


def share_rests(group: dict[str, Any], rows: Sequence[Tensor]) -> None:
    """Note the rests of all replicas: one row for each, which its own process gave."""
    entries = [
        [replica, place, number]
        for replica, row in enumerate(rows)
        for place, number in enumerate(row.tolist())
        if number >= 0
    ]
    if entries or RESTS in group:
        group[RESTS] = entries
