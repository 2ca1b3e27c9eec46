"""SVG as text: elements, numbers and scales. Colours are CSS classes, so that themes work."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape


def tag(name: str, *content: str, **attributes: object) -> str:
    """An element; attribute values are escaped, content is markup. `class_` becomes `class`.

    >>> tag("circle", cx=1.0, cy=2.34567, class_="a<b")
    '<circle cx="1" cy="2.35" class="a&lt;b"/>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(content)
    return f"<{name}{shown}>{inner}</{name}>" if inner else f"<{name}{shown}/>"


def label(x: float, y: float, words: str, *, anchor: str = "middle", class_: str = "tick") -> str:
    """Text at a place; the words are escaped."""
    return tag("text", escape(words), x=x, y=y, text_anchor=anchor, class_=class_)


def path(points: Sequence[tuple[float, float]], *, close: bool = False) -> str:
    """The `d` of a polyline.

    >>> path([(0, 0), (1, 2.5)], close=True)
    'M0 0L1 2.5Z'
    """
    joined = "L".join(f"{_short(x)} {_short(y)}" for x, y in points)
    return f"M{joined}{'Z' if close else ''}" if points else ""


def _attribute(value: object) -> str:
    return _short(value) if isinstance(value, float) else escape(str(value))


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def number(value: float | None, digits: int = 3) -> str:
    """A number for people: few digits, no needless zeros, a dash for none.

    >>> [number(v) for v in (0.98612, 12345.6, 2e-7, None, float("inf"))]
    ['0.986', '12,346', '2e-07', '–', '∞']
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}g}".replace("-", "−", 1 if value < 0 else 0)
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    r"""A share in per cent.

    >>> percent(0.98612)
    '98.6\xa0%'
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.{digits}f}\u00a0%".replace("-", "−")


def fixed(value: float | None) -> str:
    """Three digits with their zeros, so that the numbers of a column can be compared.

    >>> [fixed(v) for v in (0.74, 6.9, 0.0185, 1234.5)]
    ['0.740', '6.90', '0.0185', '1,234']
    """
    if value is None or not math.isfinite(value) or value == 0 or not 1e-3 <= abs(value) < 1000:
        return number(value)
    return f"{value:#.3g}".rstrip(".").replace("-", "−")


def share_tick(value: float) -> str:
    r"""A share as a tick: in per cent, with a decimal only where it needs one.

    >>> share_tick(0.025), share_tick(0.05)
    ('2.5\xa0%', '5\xa0%')
    """
    return percent(value, 0 if abs(100 * value - round(100 * value)) < 1e-6 else 1)


@dataclass(frozen=True)
class Axis:
    """What one direction of a chart means: its words, its range, and how ticks are written."""

    label: str
    low: float
    high: float
    log: bool = False
    write: Callable[[float], str] = number
    ticks: tuple[float, ...] | None = None
    names: tuple[str, ...] | None = None

    def place(self, value: float) -> float:
        """Where a value is, 0 … 1; outside values are put on the edge."""
        low, high = self._stretch(self.low), self._stretch(self.high)
        share = (self._stretch(value) - low) / (high - low) if high > low else 0.5
        return min(1.0, max(0.0, share))

    def _stretch(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def marks(self, count: int = 5) -> list[tuple[float, str]]:
        """Ticks as (value, words)."""
        if self.names is not None:
            return list(zip(map(float, range(len(self.names))), self.names, strict=True))
        values = self.ticks or (
            log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high, count)
        )
        return list(zip(values, self._words(values), strict=True))

    def _words(self, values: Sequence[float]) -> list[str]:
        """Different words for different ticks, with as many digits as that takes."""
        words = [self.write(value) for value in values]
        if self.write is number:
            for digits in range(4, 10):
                if len(set(words)) == len(values):
                    break
                words = [number(value, digits) for value in values]
        return words


def ticks(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Round numbers from `low` to `high`, about `count` of them.

    >>> ticks(0, 1)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    if not high > low:
        return (low,)
    rough = (high - low) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(float(f"{i * step:.12g}") for i in range(first, last + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Powers of ten in the range, with 2 and 5 between them where it is short; else round numbers.

    >>> log_ticks(0.05, 20), log_ticks(0.55, 1.9)
    ((0.1, 1.0, 10.0), (0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8))
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    stride = max(1, (last - first) // 6)
    values = [float(f"{k}e{e}") for e in range(first, last + 1, stride) for k in factors]
    inside = tuple(v for v in values if low * 0.999 <= v <= high * 1.001)
    return inside if len(inside) > 1 else ticks(low, high, 8)


def spanning(
    values: Sequence[float], *, log: bool = False, margin: float = 0.05
) -> tuple[float, float]:
    """A range that holds all finite values with some air.

    >>> spanning([0.0, 10.0], margin=0.1)
    (-1.0, 11.0)
    """
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not finite:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(finite), max(finite)
    if log:
        air = max((math.log10(high) - math.log10(low)) * margin, 0.02)
        return low / 10**air, high * 10**air
    air = (high - low) * margin or abs(high) * margin or 1.0
    return low - air, high + air
