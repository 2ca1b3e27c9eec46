"""Made tokens and drawn rows."""

import numpy as np
import torch

from tournament import data, tokens


def test_the_best_classifier_of_tokens_is_good_but_not_perfect():
    _, test, _ = tokens.made()
    likelihood = tokens.log_likelihood(test.x.numpy())
    right = (likelihood.argmax(axis=1) == test.y.numpy()).mean()
    assert 0.8 < right < 0.99


def test_tokens_follow_their_chain():
    classes = np.zeros(4000, dtype=np.int64)
    sequences = tokens.written(classes, seed=0)
    last, before = (part[0] for part in tokens.chains())
    weights = np.exp(last[2] + before[1])
    rows = (sequences[:, 9] == 2) & (sequences[:, 8] == 1)
    seen = np.bincount(sequences[rows, 10], minlength=tokens.TOKENS) / rows.sum()
    # Largest of 8 deviations: 5 sd of a fraction of about 60 rows, 1 in 10⁵.
    assert np.abs(seen - weights / weights.sum()).max() < 5 * 0.5 / np.sqrt(rows.sum())


def test_shuffled_pixels_are_the_same_pixels():
    images = torch.arange(2 * 64, dtype=torch.uint8).view(2, 1, 8, 8)
    mixed = data.shuffled_pixels(images)
    assert torch.equal(mixed.flatten(1).sort().values, images.flatten(1))
    assert not torch.equal(mixed, images)
    assert torch.equal(mixed, data.shuffled_pixels(images))


def test_tables_are_standardised_by_training_rows():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * 5 + 2
    split = data.table(x, x[:, 0].clone(), seed=1)
    sizes = [len(part.x) for part in (split.train, split.validation, split.test)]
    assert sizes == [120, 30, 50]
    torch.testing.assert_close(split.train.x.mean(dim=0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(split.train.y, split.train.x[:, 0])
    rows = {tuple(row) for part in (split.train, split.validation) for row in part.x.tolist()}
    assert not rows & {tuple(row) for row in split.test.x.tolist()}


def test_the_transformer_reads_tokens():
    assert tokens.Transformer()(torch.zeros(5, tokens.LENGTH, dtype=torch.int64)).shape == (5, 8)
