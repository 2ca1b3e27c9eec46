"""The one config of a run: small frozen dataclasses whose fields are the flags of `emcmc sample`.

Nothing here imports torch, so that `emcmc --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from entropy_mcmc.errors import (
    ConfigError,
    check_choice,
    check_count,
    check_positive,
    suggestion,
)
from entropy_mcmc.file_names import short_name
from entropy_mcmc.samplers import registry

# Methods of a run in print: every sampler, and what a run makes of SGD, which is SGHMC at T = 0.
METHOD_LABELS = {
    **{name: entry.label for name, entry in registry.SAMPLERS.items()},
    "sgd": "SGD (one network)",
    "swa": "SWA (averaged weights)",
    "ensemble": "Deep ensemble",
}
METHODS = tuple(METHOD_LABELS)
SCHEDULES = ("cyclical", "constant", "linear", "exponential", "step")
STRATEGIES = ("auto", "ddp", "fsdp2", "chains", "replicas")
PRIOR_SCALES = ("none", "fan-in")
COUPLED = ("always", "noisy")
STARTS = ("scratch", "trained", "adapters")
PRECISIONS = ("32-true", "64-true", "bf16-mixed", "bf16-true", "16-mixed")
LIKELIHOODS = ("classification", "regression")


# Hyper-parameters of samplers that are no options `sampler.NAME`: the data and the run give them.
OF_THE_RUN = ("num_data", "replicas")

Part = TypeVar("Part")


def option(default: Any, text: str) -> Any:
    """A field with its help text."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class ModelConfig:
    """Which network."""

    name: str = option(
        "auto", "mlp, cnn, resnet18 and others, module:function, or auto (fits the data)"
    )
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "arguments of the model, such as width: 32"}
    )


@dataclass(frozen=True)
class DataConfig:
    """Which data, and how they become batches."""

    name: str = option("digits", "digits, cifar10 and others, own file or folder, module:function")
    folder: str | None = option(None, "folder of the files; else $EMCMC_DATA")
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "further arguments of the reader or function"}
    )
    batch_size: int = option(64, "rows of a mini-batch, over all devices")
    num_data: int | None = option(None, "N of the posterior if not the rows, such as all tokens")
    workers: int = option(0, "threads that make batches ahead, for images in files")
    augmented: bool = option(False, "random crop and flip, for images")
    ood: list[str] | None = field(
        default=None, metadata={"help": "out-of-distribution sets; shuffled pixels by default"}
    )


def with_hyper_parameters(cls: type[Part]) -> type[Part]:
    """Add a field for every hyper-parameter of a sampler that the class does not write out."""
    for name, declared in registry.declared().items():
        if name not in OF_THE_RUN and name not in cls.__annotations__:
            cls.__annotations__[name] = declared.kind | None
            setattr(cls, name, option(None, declared.help.rstrip(".")))
    return cls


@dataclass(frozen=True)
@with_hyper_parameters
class SamplerConfig:
    """Hyper-parameters of the method; null takes the method's default, chosen for the data.

    Written out are those that the run itself reads; the others come from the samplers.
    """

    lr: float | None = option(None, "learning rate for the mean loss")
    temperature: float | None = option(None, "T of the target exp(-U/T)")
    weight_decay: float | None = option(None, "lambda of the prior N(0, I/(lambda N))")
    prior_variance: float | None = option(None, "variance of the prior, instead of weight_decay")
    prior_scale: str = option("none", "fan-in: prior_variance over the inputs of a unit")
    bias_variance: float | None = option(None, "of the prior of biases; as weights, .inf for none")
    norm_variance: float | None = option(None, "of the prior of norm layers, likewise")
    momentum: float | None = option(None, "mu of methods with momentum")
    eta: float | None = option(None, "variance of the guide around theta at T = 1")
    exchange_every: int | None = option(
        None, "k, the guide of replicas moves in every k-th round; 1 is exact"
    )
    inner_lr: float | None = option(None, "learning rate of the inner chain of entropy-sg(l)d")
    inner_steps: int | None = option(None, "gradients per step of entropy-sgd and entropy-sgld")
    clip_norm: float | None = option(
        None, "largest norm of the gradient; 20 for regression, .inf for none"
    )
    fused: str = option("auto", "compiled step: auto, yes or no")


@dataclass(frozen=True)
class ScheduleConfig:
    """How long, and when to sample."""

    epochs: int = option(100, "gradient budget of one chain, in passes over the data")
    kind: str = option("cyclical", "of lr: " + ", ".join(SCHEDULES))
    final: float = option(0.01, "last lr / first lr of linear, exponential and step")
    cycles: int | None = option(None, "restarts of lr; also the unit of --more_cycles")
    burn_in: float | None = option(None, "part of each cycle without noise and samples")
    samples_per_cycle: int | None = option(None, "samples kept in each cycle")
    coupled: str | None = option(None, "theta to its guide: always, or noisy (after burn-in)")
    warm_up: float | None = option(None, "part of the first cycle in which lr rises to its peak")
    eta_end: float | None = option(None, "scoping: eta falls to this during the burn-in of a cycle")


@dataclass(frozen=True)
class ComputeConfig:
    """Devices, precision and launch, given to Lightning Fabric."""

    accelerator: str = option("auto", "cpu, cuda, mps or auto")
    devices: int = option(1, "processes per machine")
    nodes: int = option(1, "machines")
    strategy: str = option(
        "auto", "auto, ddp, fsdp2; chains, replicas: each process its own chains, its own replica"
    )
    precision: str = option("32-true", ", ".join(PRECISIONS))
    micro_batches: int | None = option(None, "equal parts of a batch; one per process by default")
    sync_batchnorm: bool = option(False, "batch norm over the whole batch, on GPUs")
    stacked: str | None = option(None, "train chains or replicas at once: yes, no; where faster")
    threads: int | None = option(None, "threads of torch; fixed for the life of a run")
    timeout: float = option(1800.0, "seconds until a lost process stops the others")


@dataclass(frozen=True)
class OutputConfig:
    """What is written, and how often; none of it changes the chain."""

    checkpoint_seconds: float = option(60.0, "seconds between two checkpoints")
    tensorboard: bool = option(False, "also write TensorBoard event files")
    progress: bool = option(True, "show progress")
    report: bool = option(True, "write report.html at the end of the command")
    baseline: str = option("auto", "sgd: also train one SGD network; none; auto: for digits only")


@dataclass(frozen=True)
class RunConfig:
    """One run, complete.

    >>> RunConfig(method="sgld").method
    'sgld'
    """

    run_dir: str | None = option(None, "run folder; runs/DATA-METHOD by default")
    method: str = option("emcmc", "one of " + ", ".join(METHODS))
    seed: int = option(0, "of weights, batches and noise")
    chains: int | None = option(
        None, "independent chains; 1, 4 for ensemble, one per process of strategy chains"
    )
    replicas: int = option(1, "networks of emcmc that share a guide, each with its own batches")
    start: str = option("scratch", "what the model is: scratch, trained, adapters of a trained one")
    roles: str | None = option(None, "samples to keep: theta, guide or both")
    likelihood: str | None = option(None, "classification or regression; from the data if null")
    loss: str | None = option(None, "own loss, module:function (output, target) -> mean")
    log_every: int = option(50, "steps between two lines of metrics.jsonl, fewer in short runs")
    refresh_batches: int | None = option(
        None, "batches for a sample's batch-norm statistics; a tenth of the run, or an epoch"
    )
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("schedule.kind", self.schedule.kind, SCHEDULES)
        check_choice("start", self.start, STARTS)
        check_choice("schedule.coupled", self.schedule.coupled, (None, *COUPLED))
        check_choice("roles", self.roles, (None, "theta", "guide", "both"))
        check_choice("likelihood", self.likelihood, (None, *LIKELIHOODS))
        check_choice("output.baseline", self.output.baseline, ("auto", "sgd", "none"))
        check_choice("sampler.fused", self.sampler.fused, ("auto", "yes", "no"))
        check_choice("sampler.prior_scale", self.sampler.prior_scale, PRIOR_SCALES)
        check_choice("compute.strategy", self.compute.strategy, STRATEGIES)
        check_choice("compute.precision", self.compute.precision, PRECISIONS)
        check_choice("compute.stacked", self.compute.stacked, (None, "yes", "no"))
        check_count("seed", self.seed, least=0)
        check_count("log_every", self.log_every)
        check_count("replicas", self.replicas)
        check_count("schedule.epochs", self.schedule.epochs)
        check_count("data.batch_size", self.data.batch_size)
        check_count("data.workers", self.data.workers, least=0)
        for name in ("lr", "inner_lr"):
            if getattr(self.sampler, name) is not None:
                check_positive(f"sampler.{name}", getattr(self.sampler, name))
        check_positive("output.checkpoint_seconds", self.output.checkpoint_seconds)
        check_positive("compute.timeout", self.compute.timeout)
        for name in ("devices", "nodes"):
            check_count(f"compute.{name}", getattr(self.compute, name))
        optional = {
            "chains": self.chains,
            "schedule.cycles": self.schedule.cycles,
            "schedule.samples_per_cycle": self.schedule.samples_per_cycle,
            "refresh_batches": self.refresh_batches,
            "data.num_data": self.data.num_data,
            "compute.micro_batches": self.compute.micro_batches,
            "compute.threads": self.compute.threads,
        }
        for name, value in optional.items():
            if value is not None:
                check_count(name, value)

    @property
    def folder(self) -> str:
        """The run folder that is meant."""
        return self.run_dir or f"runs/{short_name(self.data.name)}-{self.method}"


def leaves(cls: type = RunConfig, prefix: str = "") -> Iterator[tuple[str, Any, Any, str]]:
    """Every option as (dotted name, type, default, help).

    Flat, because jsonargparse would import what a `class_path` in place of a dataclass names.
    """
    hints = get_type_hints(cls)
    for entry in fields(cls):
        kind, name = hints[entry.name], prefix + entry.name
        if is_dataclass(kind) and isinstance(kind, type):
            yield from leaves(kind, name + ".")
            continue
        factory = entry.default_factory
        default = entry.default if factory is MISSING else factory()
        yield name, kind, default, entry.metadata["help"]


def to_dict(config: RunConfig) -> dict[str, Any]:
    """Plain nested dict, ready for YAML."""
    return asdict(config)


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """The config of a nested dict; unknown names raise.

    >>> from_dict({"method": "sgld", "sampler": {"lr": 0.2}}).sampler.lr
    0.2
    """
    config: RunConfig = _build(RunConfig, values, "")
    return config


def _build(cls: type, values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{prefix.rstrip('.') or 'config'} must be a table, got {values!r}")
    hints, known = get_type_hints(cls), {entry.name for entry in fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigError(
            f"unknown option {prefix}{unknown[0]}{suggestion(unknown[0], known)}, got "
            f"{values[unknown[0]]!r}; "
            f"{prefix or 'the config '}has {', '.join(sorted(known))}"
        )
    return cls(
        **{
            name: _build(hints[name], value, f"{prefix}{name}.")
            if is_dataclass(hints[name])
            else _typed(f"{prefix}{name}", hints[name], value)
            for name, value in values.items()
        }
    )


def _typed(name: str, hint: Any, value: Any) -> Any:
    """The value, if it is of the option's type; whole numbers are floats, too."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    plain = tuple(get_origin(kind) or kind for kind in kinds)
    number = float in plain and isinstance(value, int)
    boolean = isinstance(value, bool) and bool not in plain
    if boolean or not (isinstance(value, plain) or number):
        raise ConfigError(f"{name} must be {_words(hint)}, got {name}={value!r:.80}")
    if isinstance(value, list) and not all(isinstance(part, str) for part in value):
        raise ConfigError(f"{name} must be a list of names, got {name}={value!r:.80}")
    return value


def _words(hint: Any) -> str:
    names = {"NoneType": "null", "str": "text", "int": "a whole number", "float": "a number"}
    names |= {"bool": "true or false", "dict": "a table", "list": "a list of names"}
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    plain = [(get_origin(kind) or kind).__name__ for kind in kinds]
    return " or ".join(names.get(kind, kind) for kind in plain)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dict → {"sampler.lr": 0.1, …}; `options` tables are flattened too."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], ignore: tuple[str, ...] = ()
) -> list[str]:
    """Lines "name: old → new" for what differs, leaving out names that start with `ignore`.

    >>> differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2})
    ['a.b: 1 → 3']
    """
    first, second = flatten(old), flatten(new)
    return [
        f"{name}: {first.get(name)!r} → {second.get(name)!r}"
        for name in {**first, **second}
        if first.get(name) != second.get(name) and not name.startswith(ignore)
    ]


def with_parts(config: RunConfig, **parts: Mapping[str, Any]) -> RunConfig:
    """Replace entries of nested parts: `with_parts(config, sampler={"lr": 0.1})`."""
    changed = {name: replace(getattr(config, name), **part) for name, part in parts.items()}
    return replace(config, **changed)
