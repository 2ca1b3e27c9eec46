"""Made token data (which Markov chain wrote this?) and a small transformer that reads them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from tournament.data import OOD, TEST, VALIDATION, Data, Rows, drawn

TOKENS, CLASSES, LENGTH, POOL = 8, 8, 24, 6000
FIRST, SECOND = 0.7, 0.7  # how strongly the last and the last but one token tell the classes apart


@lru_cache(maxsize=1)
def chains() -> tuple[np.ndarray, np.ndarray]:
    """Log weights of the next token after the last and the last but one, for CLASSES + 1 chains."""
    draws = np.random.default_rng(15)
    shape = (CLASSES + 1, TOKENS, TOKENS)
    return FIRST * draws.standard_normal(shape), SECOND * draws.standard_normal(shape)


def written(classes: np.ndarray, seed: int) -> np.ndarray:
    """One sequence for each class, drawn token by token."""
    draws, (last, before) = np.random.default_rng(seed), chains()
    sequences = draws.integers(TOKENS, size=(len(classes), LENGTH))
    for t in range(2, LENGTH):
        weights = last[classes, sequences[:, t - 1]] + before[classes, sequences[:, t - 2]]
        # The largest of log weights plus Gumbel noise is a draw from their softmax.
        sequences[:, t] = (weights + draws.gumbel(size=weights.shape)).argmax(axis=1)
    return sequences


def log_likelihood(sequences: np.ndarray) -> np.ndarray:
    """Log-likelihood of every sequence under every chain but the OOD one: the best classifier."""
    last, before = (part[:CLASSES] for part in chains())
    total = np.zeros((len(sequences), CLASSES))
    for t in range(2, LENGTH):
        weights = last[:, sequences[:, t - 1]] + before[:, sequences[:, t - 2]]
        weights -= np.log(np.exp(weights).sum(axis=-1, keepdims=True))
        total += np.take_along_axis(weights, sequences[None, :, t, None], axis=2)[..., 0].T
    return total


@lru_cache(maxsize=1)
def made() -> tuple[Rows, Rows, Tensor]:
    """Pool, test rows and OOD rows; the same every time."""
    labels = np.random.default_rng(1).integers(CLASSES, size=POOL + TEST)
    x, y = torch.from_numpy(written(labels, 2)), torch.from_numpy(labels)
    ood = torch.from_numpy(written(np.full(OOD, CLASSES), 3))
    return Rows(x[:POOL], y[:POOL]), Rows(x[POOL:], y[POOL:]), ood


def tokens(rows: int, seed: int) -> Data:
    """Sequences of tokens; OOD are sequences of a chain that no training row came from."""
    pool, test, ood = made()
    split = drawn(pool, test, rows, VALIDATION, seed)
    return Data(split.train, split.validation, split.test, (ood,))


class Transformer(nn.Module):
    """Two layers of self-attention over 24 tokens, their mean, one linear layer."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, width)
        self.place = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens `(n, 24)` to logits `(n, 8)`."""
        logits: Tensor = self.head(self.layers(self.embedding(x) + self.place).mean(dim=1))
        return logits
