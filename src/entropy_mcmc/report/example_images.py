"""Test images that say most about a classifier: the most uncertain, the most confidently wrong."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from entropy_mcmc import metrics
from entropy_mcmc.report.figures.svg import number, percent
from entropy_mcmc.report.html import Table, base64_of, details, piece
from entropy_mcmc.report.labels import class_name
from entropy_mcmc.report.page_predictions import Classified, Floats

SHOWN = 12
SIDE = 112  # pixels; larger images are made smaller
Ranking = npt.NDArray[np.intp]


def most_uncertain(probs: Floats, count: int = SHOWN) -> Ranking:
    """Rows of the highest predictive entropy, the highest first."""
    entropy = metrics.predictive_entropy(probs)
    return np.asarray(np.argsort(-entropy, kind="stable")[:count])


def confidently_wrong(probs: Floats, targets: npt.NDArray[np.int64], count: int = SHOWN) -> Ranking:
    """Rows that are wrong, the most confident first.

    >>> confidently_wrong(np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]]), np.array([1, 1, 0]))
    array([0, 1])
    """
    wrong = np.flatnonzero(probs.argmax(axis=1) != targets)
    order = np.argsort(-probs[wrong].max(axis=1), kind="stable")
    return np.asarray(wrong[order[:count]])


def gallery(predicted: Classified, places: Ranking, title: str, words: str, data: str) -> Markup:
    """Images with the truth, the most probable classes and how much the samples disagree."""
    images = predicted.rows.images
    assert images is not None
    probs = predicted.average()
    info = (
        metrics.mutual_information(
            predicted.each[:, places].astype(np.float64) if len(places) else predicted.each[:, :0]
        )
        if len(places)
        else np.zeros(0)
    )
    cards, rows = [], []
    for place, disagreement in zip(places, info, strict=True):
        truth = class_name(data, int(predicted.targets[place]))
        best = [(class_name(data, int(k)), float(probs[place, k])) for k in _best(probs[place])]
        cards.append(_card(images[place], truth, best))
        rows.append(
            [
                int(place),
                truth,
                *(f"{n} {percent(p)}" for n, p in best[:2]),
                number(float(disagreement)),
            ]
        )
    head = ["row", "true", "first choice", "second choice", "disagreement (nats)"]
    table = details("Numbers of these images", Table(title, head, rows))
    return piece("gallery", title, words, cards, table)


def _best(probs: Floats, count: int = 3) -> Ranking:
    return np.asarray(np.argsort(-probs, kind="stable")[:count])


def _card(
    pixels: npt.NDArray[np.uint8], truth: str, best: list[tuple[str, float]]
) -> dict[str, object]:
    """What the template shows of one image."""
    said, confidence = best[0]
    word, sign = ("right", "✓") if said == truth else ("wrong", "✗")
    return {
        "code": base64_of(png(pixels)),
        "alt": f"Test image of class {truth}; predicted {said} with {percent(confidence, 0)}",
        "truth": truth,
        "word": word,
        "sign": sign,
        "bars": [
            (name, "hit" if name == truth else "miss", f"{100 * p:.0f}", percent(p, 0))
            for name, p in best
        ],
    }


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A small PNG of (height, width, 1 or 3) bytes."""
    from PIL import Image

    array = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    picture = Image.fromarray(np.ascontiguousarray(array))
    picture.thumbnail((SIDE, SIDE))
    buffer = BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
