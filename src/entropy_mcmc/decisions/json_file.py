"""Small frozen dataclasses of numbers as JSON files, checked when they are read."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from entropy_mcmc.errors import DamagedFileError, MissingFileError

LARGEST = 10_000  # bytes


class JsonFile:
    """Base of a dataclass whose fields are all numbers; `kind` is written beside them."""

    kind: ClassVar[str]

    def to_json(self) -> str:
        """The fields as JSON, floats exact to the last bit."""
        return json.dumps({"kind": self.kind, **asdict(self)}, indent=1) + "\n"  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The object that `to_json` wrote.

        Raises:
            ValueError: The text is not JSON of this kind, or a field is not a finite number.
        """
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("kind", None) != cls.kind:
            raise ValueError(f"it is not of kind {cls.kind!r}")
        wanted = {f.name: {"float": float, "int": int}[str(f.type)] for f in fields(cls)}  # type: ignore[arg-type]
        if content.keys() != wanted.keys():
            raise ValueError(f"its fields must be {', '.join(wanted)}, got {', '.join(content)}")
        return cls(**{name: _number(name, content[name], wanted[name]) for name in wanted})

    def save(self, path: str | Path) -> None:
        """Write a JSON file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a JSON file that `save` wrote; it is data, nothing in it is run."""
        try:
            with Path(path).open(encoding="utf-8") as file:
                return cls.from_json(file.read(LARGEST))
        except FileNotFoundError as error:
            raise MissingFileError(f"{path} is not there; write it with save(path)") from error
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedFileError(
                f"{path} does not hold a {cls.kind} ({error}); fit and save it again"
            ) from error


def _number(name: str, value: Any, kind: type) -> Any:
    allowed = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite {kind.__name__}, got {value!r:.80}")
    return kind(value)
