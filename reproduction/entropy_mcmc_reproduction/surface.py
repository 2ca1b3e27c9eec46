"""The loss on a plane through three samples, with all samples and guides drawn on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc import flatness
from entropy_mcmc.errors import StateError
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.pictures import TRUST
from entropy_mcmc_reproduction.scale import scale

RESOLUTION = {"smoke": 5, "laptop": 17, "paper": 31}


def jobs(size: str, place: Place) -> list[Job]:
    """The plane of EMCMC's first seed."""
    chosen = scale(size)
    seed = chosen.seeds[0]
    (run,) = (j for j in cifar.jobs(size, place) if j.name == f"cifar10/emcmc-{seed}")
    settings = {
        "run": run.name,
        "subset": chosen.flatness["subset"],
        "resolution": RESOLUTION[size],
    }
    return [Job(f"surface/emcmc-{seed}", "surface:compute", settings, (run,))]


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Training loss on the plane through θ at the end of three cycles."""
    folder = place.folder(settings["run"])
    if not (folder / "samples").exists():
        raise StateError(
            f"the weights of {settings['run']} are gone from {folder}; delete "
            f"{place.result_file(settings['run'])} to sample them again"
        )
    run = load_run(folder, trust=TRUST)
    problem, posterior = run.problem, run.posterior
    train = problem.train.normalise(problem.train.inputs), problem.train.targets
    small = flatness.subset(train, min(settings["subset"], len(train[0])))
    thetas = [i for i, role in enumerate(posterior.roles) if role == "theta"]
    points = thetas if len(thetas) > 2 else list(range(len(posterior)))
    ends = [points[len(points) * k // 3 - 1] for k in (1, 2, 3)]
    names = [f"{sample.role} {number}" for number, sample in enumerate(posterior.samples)]
    found = flatness.loss_surface(
        problem.model,
        problem.loss,
        small,
        [posterior[i] for i in ends],
        samples={name: posterior[i] for i, name in enumerate(names)},
        resolution=settings["resolution"],
    )
    return {
        key: np.asarray(getattr(found, key)).tolist()
        for key in ("x", "y", "loss", "points", "samples", "residuals")
    } | {"roles": list(posterior.roles), "batchnorm": found.batchnorm}


def show(results: Results, size: str) -> Outcome:
    """A contour figure and the distances from the plane."""
    if not results:
        return Outcome([], [], [])
    found = next(iter(results.values()))
    residuals, roles = np.asarray(found["residuals"]), np.asarray(found["roles"])
    rows = [
        [role, str(int((roles == role).sum())), f"{residuals[roles == role].mean():.2f}"]
        for role in ("theta", "guide")
    ]
    side = max(found["x"][-1] - found["x"][0], found["y"][-1] - found["y"][0])
    note = (
        f"The picture is {side:.1f} wide; samples far from the plane (compare the table) lie on "
        f"another slope than the picture shows. Batch norm: {found['batchnorm']} statistics of the "
        "first point. The paper makes no claim here."
    )
    return Outcome(
        ["role", "samples", "mean distance from the plane"],
        rows,
        [],
        {"surface": lambda path: draw(found, path)},
        [note],
    )


def draw(found: dict[str, Any], path: Path) -> None:
    """Contours of the loss with θ and θ_a on them."""
    figure, (axis,) = panels(1, columns=1, width=5.2, height=4.2)
    loss = np.asarray(found["loss"])
    levels = np.geomspace(max(loss.min(), 1e-4), loss.max(), 16)
    drawn = axis.contourf(found["x"], found["y"], loss.clip(levels[0]), levels, cmap="Greys")
    bar = figure.colorbar(drawn, ax=axis, format="%.2g")
    bar.set_label("training NLL", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    places, roles = np.asarray(found["samples"]), np.asarray(found["roles"])
    for role, colour, mark in (("theta", "sgld", "o"), ("guide", "guide", "^")):
        chosen = places[roles == role]
        label = "θ" if role == "theta" else "θ_a"
        axis.scatter(*chosen.T, color=PALETTE[colour], marker=mark, s=26, label=label, zorder=3)
    axis.scatter(*np.asarray(found["points"]).T, facecolors="none", edgecolors="black", s=90)
    axis.set(xlabel="distance", ylabel="distance", aspect="equal")
    axis.legend(fontsize=8)
    save(figure, path)


ITEM = Item("loss on a plane through three samples", "beyond the paper", jobs, show)
