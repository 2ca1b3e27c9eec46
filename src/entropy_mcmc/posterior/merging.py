"""Some of the samples of a store, and the samples of several stores in a new one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from entropy_mcmc.errors import ConfigError, DamagedFileError, StateError
from entropy_mcmc.posterior.atomic_files import atomic, sha256
from entropy_mcmc.posterior.manifest import STRIDE, Key, Manifest, Sample, StoredFile, stored_step
from entropy_mcmc.posterior.model_tensors import check_match, layout
from entropy_mcmc.posterior.sample_reader import Reader
from entropy_mcmc.posterior.sample_writer import LIBRARY
from entropy_mcmc.posterior.store import Store, store_on_ranks

Choice = Sequence[int] | slice | Callable[[Sample], bool]
Part = tuple[Sequence[Sample], Reader]


def chosen_keys(samples: Sequence[Sample], choice: Choice) -> frozenset[Key]:
    """Keys of the samples that a user chose.

    Raises:
        ConfigError: A number is out of range, or nothing is chosen.
    """
    if isinstance(choice, slice):
        picked = list(samples[choice])
    elif callable(choice):
        picked = [sample for sample in samples if choice(sample)]
    else:
        for number in choice:
            if not -len(samples) <= number < len(samples):
                raise ConfigError(
                    f"a number of a sample must be at least {-len(samples)} and less than "
                    f"{len(samples)}, got {number}"
                )
        picked = [samples[number] for number in choice]
    if not picked:
        raise ConfigError(f"a subset must have at least one of the {len(samples)} samples, got 0")
    return frozenset(sample.key for sample in picked)


def require_all_samples(keys: frozenset[Key] | None, method: str) -> None:
    """Raise where a posterior is a subset, to which nothing can be added."""
    if keys is not None:
        raise StateError(
            f"{method} is for the whole posterior, and this one is a subset of its samples; "
            "collect into the posterior itself, or copy the subset with Posterior.merge"
        )


def merged_store(path: Path, parts: Sequence[Part], model: nn.Module | None) -> Store:
    """A new store with copies of all samples, written at once or not at all."""
    if model is None:
        raise ConfigError("merge needs at least one posterior, got none")
    if not any(samples for samples, _ in parts):
        raise ConfigError("the posteriors that are merged have no samples; collect some first")
    manifests = [reader.store.manifest for _, reader in parts]
    likelihoods = {manifest.likelihood for manifest in manifests}
    if len(likelihoods) > 1:
        raise ConfigError(
            f"posteriors that are merged must have one likelihood, got {sorted(likelihoods)}"
        )
    roles = {sample.role for samples, _ in parts for sample in samples}
    dtypes = {manifest.dtype for manifest in manifests}
    empty = Manifest(
        library=LIBRARY,
        likelihood=likelihoods.pop(),
        roles="both" if len(roles) > 1 else roles.pop(),
        dtype=dtypes.pop() if len(dtypes) == 1 else None,
        thin=1,
        keep_last=None,
    )
    return store_on_ranks(lambda: _copied(path, empty, parts, model), path, model)


def _copied(path: Path, empty: Manifest, parts: Sequence[Part], model: nn.Module) -> Store:
    store = Store.create(path, empty)
    try:
        copies: list[Sample] = []
        for samples, reader in parts:
            copies += _copy_part(samples, reader, store, model, first=_chains(copies))
        store.commit(replace(store.manifest, samples=tuple(copies)))
    except BaseException:
        store.close()
        shutil.rmtree(store.folder, ignore_errors=True)
        raise
    return store


def _chains(samples: Sequence[Sample]) -> int:
    return len({sample.chain for sample in samples})


def _copy_part(
    samples: Sequence[Sample], reader: Reader, store: Store, model: nn.Module, first: int
) -> list[Sample]:
    """Samples in their new place, with chains numbered from `first`."""
    order = list(dict.fromkeys(sample.chain or 0 for sample in samples))
    numbers = {chain: number for number, chain in enumerate(order, first)}

    def copy(entry: Sample) -> Sample:
        reader.store.check(entry)
        number = numbers[entry.chain or 0]
        new = replace(entry, step=stored_step(number, entry.chain_and_step[1]), chain=number)
        ending = entry.file.name.removeprefix(entry.stem)
        file = _copy_file(reader.store, entry.file, store, f"{new.stem}{ending}")
        if entry.shared is not None:
            _copy_file(reader.store, entry.shared, store, entry.shared.name)
        return replace(new, file=file)

    copies = [new for _, new in reader.each(samples, copy)]
    for new in copies:
        with store.read(new) as tensors:
            shapes = {name: tensor.shape for name, tensor in tensors.items()}
        check_match(layout(model), shapes, str(reader.store.folder))
    return copies


def _copy_file(source: Store, file: StoredFile, store: Store, name: str) -> StoredFile:
    """Copy a checked file; one that is there already, whose name is its content, stays."""
    old, new = source.folder / file.name, store.folder / name
    if new.exists() and name == file.name:
        return file
    if new.exists():
        raise ConfigError(
            f"two samples would be {name}: two steps of one chain are equal modulo {STRIDE}; give "
            f"chains of your own steps below {STRIDE}"
        )
    with atomic(new) as temporary:
        try:
            shutil.copyfile(old, temporary)
        except OSError as error:
            raise DamagedFileError(f"{old} cannot be read ({error.strerror})") from error
        if sha256(temporary) != file.sha256:
            raise DamagedFileError(f"{old} does not have the SHA-256 of its manifest")
    return replace(file, name=name)
