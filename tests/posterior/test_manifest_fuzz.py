"""Any bytes as a manifest: the object or one error of the library, in bounds, and nothing runs."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entropy_mcmc.errors import EntropyMCMCError
from entropy_mcmc.posterior.manifest import MAX_BYTES, Manifest, Sample, StoredFile, checksum
from entropy_mcmc.posterior.manifest_reader import read_manifest

SECONDS, MEGABYTES = 5, 500
FILE = StoredFile("0000000001-theta.safetensors", 7, "0" * 64)
SHARED = StoredFile(f"shared-{'1' * 64}.safetensors", 7, "1" * 64)
SAMPLE = Sample(FILE, SHARED, "theta", 1, 2, "fresh", "float32", "entropy_mcmc 1", 0)
MANIFEST = Manifest("entropy_mcmc 1", "regression", "both", None, 2, 9, 3, 1, (SAMPLE,))
VALID = MANIFEST.to_json().encode()

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(
        ["theta", "fresh", FILE.name, SHARED.name, FILE.sha256, 2**63, -1, 1, 0, "../x"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def outcome(path, content):
    """The manifest, or None for an error of the library; anything else fails the test."""
    path.write_bytes(content)
    try:
        return read_manifest(path)
    except EntropyMCMCError:
        return None


def places(data, prefix=()):
    """The way to every value of nested JSON."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from places(value, (*prefix, key))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "manifest.json"


def test_the_valid_one_is_read(path):
    assert outcome(path, VALID) == MANIFEST


@given(st.binary(max_size=2000))
@settings(max_examples=200)
def test_any_bytes(path, content):
    assert outcome(path, content) is None


@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4),
       st.integers(0, len(VALID)))  # fmt: skip
@settings(max_examples=300)
def test_bytes_replaced_and_cut(path, changes, end):
    content = bytearray(VALID)
    for place, value in changes:
        content[place] = value
    assert outcome(path, bytes(content[:end] if end % 2 else content)) in (None, MANIFEST)


@given(st.sampled_from(list(places(json.loads(VALID)))), VALUES, st.booleans())
@settings(max_examples=300)
def test_values_of_other_kinds_under_a_right_checksum(path, way, value, remove):
    data = json.loads(VALID)
    inner = data
    for key in way[:-1]:
        inner = inner[key]
    if remove:
        del inner[way[-1]]
    else:
        inner[way[-1]] = value
    made = outcome(path, json.dumps({**data, "checksum": checksum(data)}).encode())
    if made is not None:
        assert all(type(sample.step) is int and sample.step >= 0 for sample in made.samples)
        assert made.files() <= {FILE.name, SHARED.name}


def full(piece):
    """As many pieces as the largest manifest holds, in a list."""
    return b"[" + b",".join([piece] * ((MAX_BYTES - 2) // (len(piece) + 1))) + b"]"


LARGE = {
    "lists": full(b"[]"),
    "objects": full(b"{}"),
    "numbers": full(b"1.5"),
    "texts": full(b'"\\ud83d"'),
    "keys": b"{" + b",".join(b'"%d":0' % i for i in range(1_300_000)) + b"}",
    "as samples": b'{"schema":1,"samples":' + full(b"[]")[:-60] + b"]}",
    "digits": b"9" * MAX_BYTES,
    "deep": b"[" * MAX_BYTES,
    "deep objects": b'{"a":' * (MAX_BYTES // 5),
    "one text": b'{"schema":2,"checksum":"' + b"a" * (MAX_BYTES - 30) + b'"}',
    "endless": b" " * (3 * MAX_BYTES),
}

GUARDED = """
import os, resource, sys
from pathlib import Path
from entropy_mcmc.errors import EntropyMCMCError
from entropy_mcmc.posterior.manifest_reader import read_manifest
RUNS = ("exec", "compile", "import", "os.system", "os.exec", "os.posix_spawn", "os.fork",
        "subprocess.Popen", "pickle.find_class", "ctypes.dlopen", "socket.connect")
seen, refused = [], []
sys.addaudithook(lambda event, args: seen.append(event) if event in RUNS else None)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seconds, *paths = sys.argv[1:]
for path in paths:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + 1 + int(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))  # else killed
    try:
        read_manifest(Path(path))
    except EntropyMCMCError as error:
        refused.append(len(str(error)))
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1000
os.write(1, f"{len(refused)} {max(refused)} {grown} {len(seen)}".encode())
"""


def test_the_worst_large_ones_stay_in_bounds_and_run_nothing(tmp_path):
    paths = []
    for number, content in enumerate(LARGE.values()):
        paths.append(tmp_path / str(number))
        paths[-1].write_bytes(content)
    command = [sys.executable, "-c", GUARDED, str(SECONDS), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    refused, longest, megabytes, ran = map(int, done.stdout.split())
    assert refused == len(LARGE)
    assert longest < 1000  # of the messages: none repeats the file
    assert megabytes < MEGABYTES
    assert ran == 0
