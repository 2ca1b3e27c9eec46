"""The manifest: which samples a store holds, checked field by field when it is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import DamagedFileError, MissingFileError, StateError

SCHEMA = 1
NAME = "manifest.json"
ROLES = ("theta", "guide")
KEEP_ROLES = ("both", "theta", "guide")
LIKELIHOODS = ("classification", "regression")
BATCHNORM = ("none", "stale", "fresh")
SAMPLE_NAME = re.compile(r"[0-9]{10,20}-(theta|guide)(-bn[0-9]{1,9})?\.safetensors", re.ASCII)
SHARED_NAME = re.compile(r"shared-[0-9a-f]{64}\.safetensors", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_REMEDY = "restore it from a copy, or collect into a new folder"


@dataclass(frozen=True)
class StoredFile:
    """A file of the store, with what it must weigh and hash to."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Sample:
    """One sample: its file, the shared file of what was not sampled, and where it came from."""

    file: StoredFile
    shared: StoredFile | None
    role: str
    step: int
    cycle: int | None
    batchnorm: str
    dtype: str
    library: str

    @property
    def key(self) -> tuple[int, str]:
        """A store holds at most one sample for each (step, role)."""
        return self.step, self.role

    @property
    def order(self) -> tuple[int, int]:
        """Samples are kept by step, θ before its guide."""
        return self.step, ROLES.index(self.role)


@dataclass(frozen=True)
class Manifest:
    """Settings of a store and its samples; `offered` and `newest` make thinning repeatable."""

    library: str
    likelihood: str
    roles: str
    dtype: str | None
    thin: int
    keep_last: int | None
    offered: int = 0
    newest: int | None = None
    samples: tuple[Sample, ...] = ()

    def to_json(self) -> str:
        """The manifest as indented JSON."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    def files(self) -> set[str]:
        """Names of every file that the samples need."""
        files = {sample.file.name for sample in self.samples}
        return files | {s.shared.name for s in self.samples if s.shared is not None}


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest; nothing in it is trusted."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MissingFileError(
            f"{path} is not there: no posterior was created in this folder; "
            "use Posterior.create(path, model), or check the path"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{path} cannot be read ({error}); {_REMEDY}") from error
    try:
        return _parse(json.loads(text))
    except StateError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        detail = f"{type(error).__name__}: {error}"
        raise DamagedFileError(f"{path} is damaged ({detail}); {_REMEDY}") from error


def _parse(data: Any) -> Manifest:
    _expect(data, dict, "the manifest")
    schema = _count(data, "schema")
    if schema != SCHEMA:
        raise StateError(
            f"the manifest has schema {schema}, this version reads {SCHEMA}; "
            "use the version of entropy-mcmc that wrote it"
        )
    samples = tuple(sorted(map(_sample, _list(data, "samples")), key=lambda s: s.order))
    if len({sample.key for sample in samples}) != len(samples):
        raise ValueError("two samples have the same step and role")
    return Manifest(
        library=_text(data, "library"),
        likelihood=_choice(data, "likelihood", LIKELIHOODS),
        roles=_choice(data, "roles", KEEP_ROLES),
        dtype=_choice(data, "dtype", (None, "bfloat16")),
        thin=_count(data, "thin", 1),
        keep_last=_optional(data, "keep_last", lambda d, k: _count(d, k, 1)),
        offered=_count(data, "offered"),
        newest=_optional(data, "newest", _count),
        samples=samples,
    )


def _sample(data: Any) -> Sample:
    _expect(data, dict, "a sample")
    shared = data["shared"]
    return Sample(
        file=_file(data["file"], SAMPLE_NAME),
        shared=None if shared is None else _file(shared, SHARED_NAME),
        role=_choice(data, "role", ROLES),
        step=_count(data, "step"),
        cycle=_optional(data, "cycle", _count),
        batchnorm=_choice(data, "batchnorm", BATCHNORM),
        dtype=_text(data, "dtype"),
        library=_text(data, "library"),
    )


def _file(data: Any, allowed: re.Pattern[str]) -> StoredFile:
    _expect(data, dict, "a file")
    file = StoredFile(_text(data, "name"), _count(data, "bytes"), _text(data, "sha256"))
    # The whole name must match: no separators, so no path can leave the folder.
    if not allowed.fullmatch(file.name):
        raise ValueError(f"{file.name!r} is not a file name of this store")
    if not _DIGEST.fullmatch(file.sha256):
        raise ValueError(f"{file.sha256!r} is not a SHA-256")
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
