"""From names or objects to what a run samples: the network, its data, its likelihood."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from entropy_mcmc import data as data_sets
from entropy_mcmc import models
from entropy_mcmc.data import Dataset, ImageBatches, ImageFolder
from entropy_mcmc.data.local_files import root
from entropy_mcmc.errors import ConfigError, suggestion
from entropy_mcmc.file_names import is_function_name
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.losses import LOSSES, Loss, Output, check_finite_rows, in_units
from entropy_mcmc.run.seeds import derive
from entropy_mcmc.run.training_batches import Source, dataset_of, source_of
from entropy_mcmc.run.trust import import_function


@dataclass(frozen=True)
class Problem:
    """What is sampled. `build(chain)` gives a network with the starting weights of a chain."""

    model: nn.Module
    build: Callable[[int], nn.Module]
    make_source: Callable[[int], Source]
    likelihood: str
    loss: Loss
    own_loss: bool
    output: Output | None
    train: Any
    test: Any
    validation: Any = None  # rows that the user holds out for `tune`
    stated_num_data: int | None = None

    @property
    def num_data(self) -> int:
        """N of the posterior: the training rows, unless the config states another number."""
        return self.stated_num_data or self.source.num_data

    @property
    def source(self) -> Source:
        """The training data in the order of chain 0."""
        return self.make_source(0)

    def fresh(self, chain: int) -> Mapping[str, Tensor]:
        """The starting weights of a chain."""
        return self.build(chain).state_dict()

    def anew(self) -> Problem:
        """The same problem with a new network, as it was before the first step."""
        return replace(self, model=self.build(0))


def build_problem(
    config: RunConfig, model: Any = None, data: Any = None, loss: Loss | None = None
) -> Problem:
    """Build what the config names; `model`, `data` and `loss` objects take precedence."""
    sets = _data(config, data)
    train = sets.train
    likelihood = str(config.likelihood or getattr(train, "task", "classification"))
    _check_arrays(train)
    own = loss or (import_function(config.loss) if config.loss else None)
    factory = _factory(config, model, train, likelihood)
    start = factory(0)
    _refuse_meta(start)
    return Problem(
        model=start,
        build=factory,
        make_source=lambda chain: source_of(
            train,
            config.data.batch_size,
            derive(config.seed, "order", chain),
            config.data.augmented,
        ),
        likelihood=likelihood,
        loss=own or LOSSES[likelihood],
        own_loss=own is not None,
        output=_output(train, likelihood),
        train=train,
        test=sets.test,
        validation=sets.validation,
        stated_num_data=config.data.num_data,
    )


class Sets(NamedTuple):
    """Data by use; only training data are needed."""

    train: Any
    test: Any = None
    validation: Any = None


def _data(config: RunConfig, data: Any) -> Sets:
    """Training data, and others where there are any."""
    asked = config.data
    if data is None and is_function_name(asked.name):
        function = import_function(asked.name)
        check_options(function, asked.options, "data.options")
        data = function(**asked.options)
    if data is None or isinstance(data, str):
        name = data or asked.name
        if name == "imagenet":
            return Sets(*_imagenet(config))
        _check_reader_options(asked.options)
        options = {"folder": asked.folder, "task": config.likelihood, **asked.options}
        return Sets(*(data_sets.load(name, split=s, **options) for s in ("train", "test")))
    if _is_array(data):
        raise ConfigError(
            f"data must have inputs and targets, got one array of shape {tuple(data.shape)}; pass "
            "a pair (x, y)"
        )
    if isinstance(data, Mapping):
        if "train" not in data:
            raise ConfigError(f"data must have an entry train, got {', '.join(map(str, data))}")
        return Sets(*(_as_set(data.get(name)) for name in Sets._fields))
    if isinstance(data, tuple) and len(data) == 2 and not _is_array(data[0]):
        return Sets(_as_set(data[0]), _as_set(data[1]))
    return Sets(_as_set(data))


def check_options(function: Callable[..., Any], options: Mapping[str, Any], where: str) -> None:
    """Refuse options that a function does not take, and say which it takes."""
    parameters = inspect.signature(function).parameters
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        raise ConfigError(
            f"{where} do not fit {getattr(function, '__name__', function)} ({error}); it takes "
            f"{', '.join(parameters) or 'none'}"
        ) from error


def _check_reader_options(options: Mapping[str, Any]) -> None:
    known = set(inspect.signature(data_sets.load).parameters) - {"name", "split"}
    for option in sorted(set(options) - known):
        raise ConfigError(
            f"data sets have no option data.options.{option}{suggestion(option, known)}, got "
            f"{options[option]!r}; they have {', '.join(sorted(known))}"
        )


def _imagenet(config: RunConfig) -> tuple[Any, Any]:
    """Streams of image files: they do not fit into memory."""
    folder, size = root(config.data.folder) / "imagenet", config.data.batch_size
    options = dict(config.data.options)
    side = options.pop("side", 224)
    if options:
        raise ConfigError(
            f"imagenet has no option data.options.{next(iter(options))}; it has side, the height "
            "and width of the images"
        )
    train = ImageBatches(ImageFolder(folder, "train"), size, side=side)
    test = ImageFolder(folder, "test")
    whole = min(size, len(test))
    return train, ImageBatches(test, whole, augmented=False, drop_last=False, side=side)


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__array__")


def _as_set(data: Any) -> Any:
    if isinstance(data, tuple) and len(data) == 2 and _is_array(data[0]):
        return dataset_of(*data)
    return data


def _check_arrays(train: Any) -> None:
    if isinstance(train, Dataset):
        check_finite_rows("training inputs", train.inputs)
        check_finite_rows("training targets", train.targets)


def _refuse_meta(model: nn.Module) -> None:
    for name, param in model.named_parameters():
        if param.is_meta:
            raise ConfigError(
                f"the model must have values, got {name} on the meta device; build it on the CPU, "
                "or call model.to_empty(device='cpu') and initialise it"
            )


def _output(train: Any, likelihood: str) -> Output | None:
    if likelihood != "regression" or not isinstance(train, Dataset):
        return None
    return in_units(train.target_mean, train.target_std)


def _factory(
    config: RunConfig, model: Any, train: Any, likelihood: str
) -> Callable[[int], nn.Module]:
    """A function chain → model with the starting weights of that chain."""
    if isinstance(model, nn.Module):
        # A copy, because the chain moves the weights of the model that was given.
        template = copy.deepcopy(model)
        if config.start != "scratch":  # every chain begins at the trained weights
            return lambda chain: copy.deepcopy(template) if chain else model
        return lambda chain: _restart(template, chain, config.seed) if chain else model
    build = model if callable(model) else _builder(config, model, train, likelihood)

    def seeded(chain: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(derive(config.seed, "weights", chain))
            made = build()
        if not isinstance(made, nn.Module):
            raise ConfigError(f"the model must be a torch.nn.Module, got {type(made).__name__}")
        return made

    return seeded


def _restart(template: nn.Module, chain: int, seed: int) -> nn.Module:
    """A copy with new weights, by `reset_parameters` of its layers."""
    model = copy.deepcopy(template)
    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, "weights", chain))
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            elif any(True for _ in module.parameters(recurse=False)):
                raise ConfigError(
                    f"chains must be 1 for a model whose {type(module).__name__} has no "
                    "reset_parameters; pass a function that builds the model instead"
                )
    return model


def _builder(config: RunConfig, model: Any, train: Any, likelihood: str) -> Callable[[], nn.Module]:
    name, options = model or config.model.name, dict(config.model.options)
    if ":" in name:
        function = import_function(name)
        check_options(function, options, "model.options")
        return lambda: function(**options)
    images = isinstance(train, Dataset) and train.inputs.dim() == 4
    fallback = "resnet50" if isinstance(train, ImageBatches) else "cnn" if images else "mlp"
    name = fallback if name == "auto" else name
    known = models.registry.options(name)
    fitted = _fitting(train, likelihood)
    options = {**{k: v for k, v in fitted.items() if k in known}, **options}
    return lambda: models.build(name, **options)


def _fitting(train: Any, likelihood: str) -> dict[str, Any]:
    """Options of a built-in model that follow from the data."""
    if isinstance(train, ImageBatches):
        return {"outputs": len(train.images.class_names), "in_channels": 3}
    if not isinstance(train, Dataset):
        return {}
    shape = tuple(train.inputs.shape[1:])
    fitted: dict[str, Any] = {"in_features": int(torch.Size(shape).numel())}
    fitted["outputs"] = 2 if likelihood == "regression" else train.classes
    if len(shape) == 3:
        fitted |= {"in_channels": shape[0], "image_size": shape[1]}
    return fitted


def fingerprint(
    problem: Problem, named_model: str | None, named_data: str | None
) -> dict[str, Any]:
    """What identifies model and data on resume: names, shapes, and the first batch."""
    shapes = [(n, tuple(v.shape), str(v.dtype)) for n, v in problem.model.state_dict().items()]
    inputs, targets = problem.source.micro(0, 0, 1)
    return {
        "model": named_model or type(problem.model).__name__,
        "parameters": sum(p.numel() for p in problem.model.parameters()),
        "structure": sha256(repr(shapes).encode()).hexdigest()[:16],
        "data": named_data or type(problem.train).__name__,
        "rows": problem.source.num_data,
        "first_batch": _digest(inputs, targets),
        "likelihood": problem.likelihood,
        "loss": _loss_name(problem.loss),
    }


def _loss_name(loss: Loss) -> str:
    return f"{inspect.getmodule(loss).__name__}:{getattr(loss, '__name__', type(loss).__name__)}"  # type: ignore[union-attr]


def _digest(*values: Any) -> str:
    total = sha256()
    for value in values:
        parts = value.values() if isinstance(value, Mapping) else [value]
        for part in parts:
            tensor = part.detach().cpu().contiguous() if isinstance(part, Tensor) else None
            raw = (
                repr(part).encode()
                if tensor is None
                else tensor.flatten().view(torch.uint8).numpy().tobytes()
            )
            total.update(raw)
    return total.hexdigest()[:16]
