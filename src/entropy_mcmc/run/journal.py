"""`metrics.jsonl`: one line per event, without clocks, so that a resumed run writes the same."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import DamagedFileError, StateError
from entropy_mcmc.posterior.atomic_files import WriterLock, atomic, is_regular
from entropy_mcmc.run.checkpoint import explained

NAME = "metrics.jsonl"
TEXTS = ("kind", "set", "who")
Event = Mapping[str, Any]


class Journal:
    """Append-only during a chain; rewritten atomically when a run resumes or is evaluated."""

    def __init__(self, folder: Path, part: int | None = None) -> None:
        """The run's journal, or the part of it that chain `part` writes in its own process."""
        self.path = folder / (NAME if part is None else _part(part))

    def events(self) -> list[dict[str, Any]]:
        """All lines but a last one that a kill has torn."""
        if not self.path.exists():
            return []
        try:
            *whole, last = self._text().split("\n")
            torn = last and not _is_json(last)  # by a kill: no line is written after it
            return [_parse(line) for line in (whole if torn or not last else [*whole, last])]
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedFileError(
                f"{self.path} is damaged ({error!s:.200}); restore it from a copy, or remove the "
                "lines that are no JSON"
            ) from error

    def _text(self) -> str:
        if not is_regular(self.path):
            raise ValueError("it is no regular file")
        return self.path.read_text(encoding="utf-8")

    def append(self, event: Event) -> None:
        """Add a line; `sync` makes it last."""
        with explained(self.path.parent), self.path.open("a", encoding="utf-8") as file:
            file.write(_line(event))

    def sync(self) -> None:
        """Flush to the disk, before a checkpoint that builds on it."""
        if self.path.exists():
            with explained(self.path.parent), self.path.open("a") as file:
                os.fsync(file.fileno())

    def keep(self, wanted: Callable[[Event], bool]) -> None:
        """Drop the other lines."""
        self._rewrite([event for event in self.events() if wanted(event)])

    def rewind(self, chain: int, step: int) -> None:
        """Forget what chain `chain` wrote after `step`, and evaluations of an older state."""
        self.keep(
            lambda event: (
                event["kind"] != "evaluate"
                and not (event["chain"] == chain and event["step"] > step)
            )
        )

    def evaluations(self) -> list[dict[str, Any]]:
        """Lines of the last evaluation."""
        return [event for event in self.events() if event["kind"] == "evaluate"]

    def replace_evaluations(self, events: list[Event]) -> bool:
        """Put a new evaluation in the place of the last one; False if a run is writing here.

        A run that goes on appends lines, which rewriting the file would drop, and its last
        evaluation is of all of its samples.
        """
        try:
            lock = WriterLock(self.path.parent)
        except StateError:
            return False
        with lock:
            training = [event for event in self.events() if event["kind"] != "evaluate"]
            self._rewrite([*training, *({"kind": "evaluate", **event} for event in events)])
        return True

    def merge(self) -> None:
        """Take in the parts, in the order of the chains; done again after a kill, it is the same.

        Lines that a part repeats, and evaluations of an older state, go.
        """
        for path in sorted(self.path.parent.glob(_part("*")), key=_number):
            chain, new = _number(path), Journal(path.parent, _number(path)).events()
            first = new[0]["step"] if new else float("inf")
            self._rewrite([*self._before(chain, first), *new])
            path.unlink()

    def _before(self, chain: int, step: float) -> list[dict[str, Any]]:
        return [
            event
            for event in self.events()
            if event["kind"] != "evaluate"
            and not (event["chain"] == chain and event["step"] >= step)
        ]

    def _rewrite(self, events: list[Any]) -> None:
        with explained(self.path.parent), atomic(self.path) as temporary:
            temporary.write_text("".join(map(_line, events)), encoding="utf-8")


def _part(chain: int | str) -> str:
    return f"metrics.chain-{chain}.jsonl"


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _line(event: Event) -> str:
    return json.dumps(event) + "\n"


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _parse(line: str) -> dict[str, Any]:
    """The event of a line; ValueError for what this class does not write."""
    event = json.loads(line)
    if not isinstance(event, dict) or "kind" not in event:
        raise ValueError(f"no event: {line!r:.80}")
    if event["kind"] != "evaluate":
        for name in ("chain", "step"):
            if not isinstance(event.get(name), int):
                raise ValueError(f"a line of kind {event['kind']!r:.40} has no {name}")
    elif not isinstance(event.get("set"), str):
        raise ValueError("an evaluation must name its set")
    if event["kind"] in ("train", "evaluate"):
        _check_numbers(event)
    return event


def _check_numbers(event: Event) -> None:
    """ValueError unless all but the names are numbers, or none that could be computed."""
    for name, value in event.items():
        known = value is not None or event["kind"] == "train"
        if name not in TEXTS and known and not isinstance(value, int | float):
            raise ValueError(f"{name!r:.40} must be a number, got {value!r:.40}")
