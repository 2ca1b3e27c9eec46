"""Reading a manifest: every field is checked, and nothing in it is trusted."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import DamagedFileError, MissingFileError, StateError
from entropy_mcmc.posterior.manifest import (
    BATCHNORM,
    KEEP_ROLES,
    LIKELIHOODS,
    MAX_BYTES,
    ROLES,
    SAMPLE_NAME,
    SCHEMA,
    SHARED_NAME,
    STRIDE,
    Manifest,
    Sample,
    StoredFile,
    checksum,
)

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_REMEDY = "restore it from a copy, or collect into a new folder"


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file, checked.

    Raises:
        MissingFileError: There is no such file.
        DamagedFileError: It is no manifest, or not the one that was written.
        StateError: Another version of the library wrote it.
    """
    try:
        text = _text_of(path)
    except FileNotFoundError as error:
        raise MissingFileError(
            f"{path} is not there: no posterior was created in this folder; "
            "use Posterior.create(path, model), or check the path"
        ) from error
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error}); {_REMEDY}") from error
    try:
        return _parse(json.loads(text))
    except StateError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        detail = f"{type(error).__name__}: {error}"
        raise DamagedFileError(f"{path} is damaged ({detail}); {_REMEDY}") from error


def _text_of(path: Path) -> str:
    """The content of a regular file; a FIFO or a device is not even waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    # The library writes ASCII; other text would only take four times the memory.
    return content.decode("ascii")


def _parse(data: Any) -> Manifest:
    _expect(data, dict, "the manifest")
    schema = _count(data, "schema")
    if not 1 <= schema <= SCHEMA:
        raise StateError(
            f"the manifest has schema {schema}, this version reads 1 … {SCHEMA}; "
            "use the version of entropy-mcmc that wrote it"
        )
    if (schema > 1 or "checksum" in data) and _text(data, "checksum") != checksum(data):
        raise ValueError("its content does not have its checksum")
    return Manifest(
        library=_text(data, "library"),
        likelihood=_choice(data, "likelihood", LIKELIHOODS),
        roles=_choice(data, "roles", KEEP_ROLES),
        dtype=_choice(data, "dtype", (None, "bfloat16")),
        thin=_count(data, "thin", 1),
        keep_last=_optional(data, "keep_last", lambda d, k: _count(d, k, 1)),
        offered=_count(data, "offered"),
        newest=_optional(data, "newest", _count),
        samples=_samples(_list(data, "samples"), schema),
        verified="checksum" in data,
    )


def _samples(entries: list[Any], schema: int) -> tuple[Sample, ...]:
    samples = sorted((_sample(entry, schema) for entry in entries), key=lambda s: s.order)
    if len({sample.key for sample in samples}) != len(samples):
        raise ValueError("two samples have the same step, role and replica")
    if len({sample.file.name for sample in samples}) != len(samples):
        raise ValueError("one file is listed under two samples")
    if schema == 1:
        samples = _with_chains(samples)
    return tuple(samples)


def _with_chains(samples: list[Sample]) -> list[Sample]:
    """Chains of a schema that did not record them: known where steps show that there were several.

    >>> _with_chains([])
    []
    """
    if not samples or samples[-1].step < STRIDE:
        return samples
    return [replace(sample, chain=sample.chain_and_step[0]) for sample in samples]


def _sample(data: Any, schema: int) -> Sample:
    _expect(data, dict, "a sample")
    shared = data["shared"]
    sample = Sample(
        file=_file(data["file"], SAMPLE_NAME),
        shared=None if shared is None else _file(shared, SHARED_NAME),
        role=_choice(data, "role", ROLES),
        step=_count(data, "step"),
        cycle=_optional(data, "cycle", _count),
        batchnorm=_choice(data, "batchnorm", BATCHNORM),
        dtype=_text(data, "dtype"),
        library=_text(data, "library"),
        chain=None if schema == 1 else _optional(data, "chain", _count),
        replica=None if schema < 3 else _optional(data, "replica", _count),
    )
    if sample.file.name.removesuffix(".safetensors").partition("-bn")[0] != sample.stem:
        raise ValueError(f"{sample.file.name!r} is no file of step {sample.step}, {sample.role}")
    return sample


def _file(data: Any, allowed: re.Pattern[str]) -> StoredFile:
    _expect(data, dict, "a file")
    file = StoredFile(_text(data, "name"), _count(data, "bytes"), _text(data, "sha256"))
    # The whole name must match: no separators, so no path can leave the folder.
    if not allowed.fullmatch(file.name):
        raise ValueError(f"{file.name[:80]!r} is not a file name of this store")
    if not _DIGEST.fullmatch(file.sha256):
        raise ValueError(f"{file.sha256[:80]!r} is not a SHA-256")
    return file


def _expect(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{what} must be {kind.__name__}, got {str(value)[:80]!r}")
    return value


def _text(data: dict[str, Any], key: str) -> str:
    return str(_expect(data[key], str, key))


def _list(data: dict[str, Any], key: str) -> list[Any]:
    return list(_expect(data[key], list, key))


def _count(data: dict[str, Any], key: str, least: int = 0) -> int:
    number = int(_expect(data[key], int, key))
    if not least <= number < 2**63:
        raise ValueError(f"{key} must be at least {least}, got {number}")
    return number


def _optional(
    data: dict[str, Any], key: str, read: Callable[[dict[str, Any], str], int]
) -> int | None:
    return None if data[key] is None else read(data, key)


def _choice(data: dict[str, Any], key: str, allowed: tuple[Any, ...]) -> Any:
    if data[key] not in allowed:
        raise ValueError(f"{key} must be one of {allowed}, got {str(data[key])[:80]!r}")
    return data[key]
