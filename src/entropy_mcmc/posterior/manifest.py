"""The manifest: the settings of a store and its samples, as one JSON file with a checksum.

Schema 1 had neither the checksum nor the chain of a sample; it is read, and marked as unverified.
Schema 3 has the replica of a sample; a store without replicas is written in schema 2.
A checksum detects damage, not forgery: whoever can write the file can write its checksum too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from entropy_mcmc.errors import StateError

SCHEMA = 3
NAME = "manifest.json"
# Room for some 35,000 samples; whatever the bytes say, reading them takes less than 500 MB.
MAX_BYTES = 16_000_000
ROLES = ("theta", "guide")
KEEP_ROLES = ("both", "theta", "guide")
LIKELIHOODS = ("classification", "regression")
BATCHNORM = ("none", "stale", "fresh")
SAMPLE_NAME = re.compile(
    r"[0-9]{10,20}-(theta|guide)(-r[0-9]{1,5})?(-bn[0-9]{1,9})?\.safetensors", re.ASCII
)
SHARED_NAME = re.compile(r"shared-[0-9a-f]{64}\.safetensors", re.ASCII)
STRIDE = 10**10  # more steps than any chain has

Key = tuple[int, str, int | None]


def stored_step(chain: int, step: int) -> int:
    """The step under which a run stores step `step` of a chain, so that chains never share one."""
    return chain * STRIDE + step


"""What tells the samples of a store apart: step, role and replica."""


@dataclass(frozen=True)
class StoredFile:
    """A file of the store, with what it must weigh and hash to."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Sample:
    """One sample: its file, the shared file of what was not sampled, and where it came from.

    `chain` is None where the collector did not say which chain it was, `replica` where θ is the
    only network of its guide, and for the guide.
    """

    file: StoredFile
    shared: StoredFile | None
    role: str
    step: int
    cycle: int | None
    batchnorm: str
    dtype: str
    library: str
    chain: int | None = None
    replica: int | None = None

    @property
    def key(self) -> Key:
        """A store holds at most one sample for each (step, role, replica)."""
        return self.step, self.role, self.replica

    @property
    def chain_and_step(self) -> tuple[int, int]:
        """Chain and step of a sample that a run has stored: the inverse of `stored_step`."""
        return divmod(self.step, STRIDE)

    @property
    def order(self) -> tuple[int, int, int]:
        """Samples are kept by step, θ before its guide, replicas in their order."""
        return self.step, ROLES.index(self.role), self.replica or 0

    @property
    def stem(self) -> str:
        """How the name of its file begins; a batch-norm refresh appends to it."""
        return stem(self.key)


def stem(key: Key) -> str:
    """How the name of a sample's file begins.

    >>> stem((12, "theta", None)), stem((12, "theta", 3))
    ('0000000012-theta', '0000000012-theta-r3')
    """
    step, role, replica = key
    return f"{step:010d}-{role}" + ("" if replica is None else f"-r{replica}")


@dataclass(frozen=True)
class Manifest:
    """Settings of a store and its samples; `offered` and `newest` make thinning repeatable.

    `verified` is False for a manifest that was read without a checksum.
    """

    library: str
    likelihood: str
    roles: str
    dtype: str | None
    thin: int
    keep_last: int | None
    offered: int = 0
    newest: int | None = None
    samples: tuple[Sample, ...] = ()
    verified: bool = field(default=True, compare=False)

    def to_json(self) -> str:
        """The manifest as indented JSON, with its checksum."""
        content = {"schema": SCHEMA, **asdict(self)}
        del content["verified"]
        if all(sample.replica is None for sample in self.samples):
            content["schema"] = SCHEMA - 1  # so that earlier versions read it, too
            for entry in content["samples"]:
                del entry["replica"]
        text = json.dumps({**content, "checksum": checksum(content)}, indent=1) + "\n"
        if len(text) > MAX_BYTES:
            raise StateError(
                f"{len(self.samples)} samples are more than a manifest of {MAX_BYTES} bytes lists; "
                "use keep_last or thin, or collect into a second folder"
            )
        return text

    def files(self) -> set[str]:
        """Names of every file that the samples need."""
        files = {sample.file.name for sample in self.samples}
        return files | {s.shared.name for s in self.samples if s.shared is not None}

    def of_chain(self, chain: int | None) -> tuple[Sample, ...]:
        """Samples of one chain, by step; all for None. A sample without a chain is of chain 0."""
        return tuple(s for s in self.samples if chain is None or (s.chain or 0) == chain)

    def digest(self, count: int, chain: int | None = None) -> str:
        """SHA-256 of which samples the first `count` are: step, role, cycle, chain, dtype, replica.

        Later samples of the same chain, and a batch-norm refresh (which replaces files), leave it
        as it is. So a checkpoint can record `count` and `digest(count, chain)` and find out at
        resume whether a sample that was there is lost: a kill between manifest and checkpoint only
        adds samples. Samples are ordered by step; with several chains, later samples of one come
        before those of the next, so ask for the digest of one chain. `keep_last` drops the first
        samples: a store that has it needs another record.

        Args:
            count: How many samples, from the first; at most those that there are.
            chain: The samples of this chain only; of all for None.

        Raises:
            StateError: There are fewer than `count` samples.

        >>> Manifest("", "regression", "both", None, 1, None).digest(0)[:8]
        'e3b0c442'
        """
        samples = self.of_chain(chain)
        if not 0 <= count <= len(samples):
            raise StateError(
                f"count must be between 0 and the {len(samples)} samples that the manifest lists"
                f"{'' if chain is None else f' for chain {chain}'}, got {count}"
            )
        total = hashlib.sha256()
        for s in samples[:count]:
            replica = () if s.replica is None else (s.replica,)
            which = (s.step, s.role, s.cycle, s.chain or 0, s.dtype, *replica)
            total.update(repr(which).encode())
        return total.hexdigest()


def checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest's values, whatever their layout; its own entry is left out."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
