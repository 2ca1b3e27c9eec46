"""What a posterior becomes for use: one network, one module, a file, calibrated decisions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc.decisions import Abstention, TemperatureScaling
from entropy_mcmc.errors import StateError, check_choice
from entropy_mcmc.posterior.averaged_module import AveragedModule, filled_networks
from entropy_mcmc.posterior.labelled_data import inputs_and_targets
from entropy_mcmc.posterior.manifest import KEEP_ROLES
from entropy_mcmc.posterior.model_inputs import home, to_device
from entropy_mcmc.posterior.predictive import require_likelihood
from entropy_mcmc.posterior.predictor import Predictor
from entropy_mcmc.posterior.private_copy import Workspace, copied
from entropy_mcmc.posterior.sample_reader import predictable
from entropy_mcmc.posterior.single_network import averaged_network, in_mode, losses_of, mode_of


class Deployable(Predictor):
    """Ways from the samples to something that is used; see `Posterior` and docs/deploying.md."""

    def sample_losses(self, data: Any, *, roles: str = "both", batch_size: int = 256) -> Tensor:
        """Mean NLL of each sample alone, in the order of `samples`.

        Args:
            data: Validation data: a pair (x, y), or a loader of (x, y) or dicts.
            roles: Which samples.
            batch_size: Rows at a time, where the data are not a loader.

        Returns:
            One number for each sample; half the mean squared error for a regression network
            that returns no variance.
        """
        x, targets = inputs_and_targets(data)
        each = self.sample_predictions(x, roles=roles, batch_size=batch_size)
        return losses_of(each, targets, self.likelihood)

    def best_single(self, data: Any, *, roles: str = "both", batch_size: int = 256) -> nn.Module:
        """A copy of the model with the sample of lowest loss on validation data.

        Its loss there is the smallest of several, so that it is too good an estimate: judge the
        network on other data. Arguments as `sample_losses`.
        """
        losses = self.sample_losses(data, roles=roles, batch_size=batch_size)
        samples = predictable(self.samples, roles, self)
        network = copied(self.model)
        for sample, tensors in self._reader.opened([samples[int(losses.argmin())]]):
            self._reader.fill(Workspace(network), sample, tensors)
        return network

    def mean_network(
        self,
        loader: Iterable[Any] | None = None,
        *,
        mode: tuple[int, int] | None = None,
        roles: str = "theta",
    ) -> nn.Module:
        """A copy of the model with the mean weights of one mode: the samples of a cycle.

        Weights of different cycles or chains lie in different basins, and their mean in none.

        Args:
            loader: Training data, for the batch-norm statistics of the averaged weights; needed
                where the model has batch norm.
            mode: (chain, cycle), counted from 0; the newest by default.
            roles: Average "theta", "guide" or "both".
        """
        check_choice("roles", roles, KEEP_ROLES)
        samples = [sample for sample in self.samples if roles in ("both", sample.role)]
        if not samples:
            raise StateError(f"{self!r} has no samples with roles={roles!r}; collect some first")
        of_mode = in_mode(samples, mode_of(samples[-1]) if mode is None else mode)
        return averaged_network(copied(self.model), self._reader, of_mode, loader)

    def as_module(
        self, *, roles: str = "both", temperature: TemperatureScaling | None = None
    ) -> AveragedModule:
        """All samples as one module: x → averaged probabilities, or mean and variance.

        Every sample's weights are in memory; what is the same in all of them (a frozen backbone)
        is there once and runs once per call. `torch.export` and ONNX take the module.

        Args:
            roles: Average over "theta", "guide" or "both".
            temperature: What `scale_temperature` gave, to be part of the module.
        """
        check_choice("roles", roles, KEEP_ROLES)
        if temperature is not None:
            require_likelihood(self.likelihood, "classification", "temperature", "the mean alone")
        samples = predictable(self.samples, roles, self)
        networks = filled_networks(copied(self.model), self._reader.loads(samples))
        scale = 1.0 if temperature is None else temperature.temperature
        return AveragedModule(networks, self.likelihood, self._output, scale)

    def export(
        self,
        path: str | Path,
        example: Any,
        *,
        roles: str = "both",
        temperature: TemperatureScaling | None = None,
        dynamic: bool = True,
    ) -> AveragedModule:
        """Write `as_module` to a file, and check that the file gives the posterior's predictions.

        Args:
            path: A name that ends in .pt2 (`torch.export`) or .onnx (the extra `onnx`).
            example: Inputs of a few rows, as for `predict_proba`.
            roles: As `as_module`, like `temperature`.
            temperature: Part of the file, if given.
            dynamic: Whether the number of rows may differ from the example's.

        Returns:
            The module that was written.
        """
        from entropy_mcmc.posterior.exporting import export_module

        module = self.as_module(roles=roles, temperature=temperature)
        inputs = to_device(example, *home(self.model))
        each = self.sample_predictions(inputs, roles=roles)
        expected = module.average(each)
        export_module(module, Path(path), inputs, expected, dynamic=dynamic)
        return module

    def scale_temperature(
        self, data: Any, *, roles: str = "both", batch_size: int = 256
    ) -> TemperatureScaling:
        """The temperature of averaged probabilities with the lowest NLL on validation data.

        It changes nothing here: apply it to probabilities, give it to `as_module` or `export`,
        and keep it with `save`. Arguments as `sample_losses`.
        """
        x, targets = inputs_and_targets(data)
        return TemperatureScaling.fit(
            self.predict_proba(x, roles=roles, batch_size=batch_size), targets
        )

    def abstain(
        self,
        data: Any,
        *,
        risk: float,
        delta: float = 0.05,
        temperature: TemperatureScaling | None = None,
        roles: str = "both",
        batch_size: int = 256,
    ) -> Abstention:
        """The rule that answers most rows with an error rate of at most `risk` among them.

        Args:
            data: Validation data that nothing was chosen on, not even `temperature`.
            risk: Error rate to stay below, such as 0.01.
            delta: Probability, over validation sets, with which the promise may fail.
            temperature: Applied to the probabilities first.
            roles: As `sample_losses`, like `batch_size`.
            batch_size: Rows at a time.
        """
        x, targets = inputs_and_targets(data)
        probs = self.predict_proba(x, roles=roles, batch_size=batch_size)
        scaled = probs if temperature is None else torch.as_tensor(temperature(probs))
        return Abstention.fit(scaled, targets, risk=risk, delta=delta)
