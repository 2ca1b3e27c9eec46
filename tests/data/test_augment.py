"""Crop and flip: equal to a loop over images, the same for any slice, uniform."""

import numpy as np
import pytest
import torch

from entropy_mcmc.data import augment, normalise
from entropy_mcmc.data.augment import crop_tensor, draws
from entropy_mcmc.errors import ConfigError


def images(count=50, channels=3, height=12, width=9):
    generator = torch.Generator().manual_seed(0)
    shape = (count, channels, height, width)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def one_by_one(batch, top, left, mirror, padding):
    out = torch.zeros_like(batch)
    count, _, height, width = batch.shape
    for i in range(count):
        for row in range(height):
            for column in range(width):
                y, x = row + int(top[i]) - padding, column + int(left[i]) - padding
                if 0 <= y < height and 0 <= x < width:
                    source = width - 1 - x if mirror[i] else x
                    out[i, :, row, column] = batch[i, :, y, source]
    return out


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("flip", [True, False])
def test_equals_a_loop_over_images(padding, flip, device):
    batch = images()
    top, left, mirror = draws(len(batch), seed=3, step=11, padding=padding)
    expected = one_by_one(batch, top, left, mirror & flip, padding)
    result = augment(batch.to(device), seed=3, step=11, padding=padding, flip=flip)
    assert torch.equal(result.cpu(), expected)


def test_the_tensor_path_of_other_devices_gives_the_same_images():
    batch = images()
    top, left, mirror = draws(len(batch), seed=3, step=11, padding=4)
    expected = augment(batch, seed=3, step=11)
    assert torch.equal(crop_tensor(batch, top, left, mirror, 4), expected)


def test_non_contiguous_batches_and_the_input_is_kept():
    batch = images().permute(0, 1, 3, 2)
    before = batch.clone()
    assert torch.equal(augment(batch, seed=0, step=0), augment(before, seed=0, step=0))
    assert torch.equal(batch, before)


def test_a_slice_of_the_global_batch_gets_the_same_images():
    batch = images()
    whole = augment(batch, seed=5, step=2)
    assert torch.equal(augment(batch[20:], seed=5, step=2, first=20), whole[20:])


def test_seed_and_step_change_the_images():
    batch = images()
    base = augment(batch, seed=0, step=0)
    assert not torch.equal(base, augment(batch, seed=0, step=1))
    assert not torch.equal(base, augment(batch, seed=1, step=0))
    assert torch.equal(base, augment(batch, seed=0, step=0))


def test_draws_are_pinned():
    top, left, mirror = draws(6, seed=0, step=0, padding=4)
    assert top.tolist() == PINNED_TOP
    assert left.tolist() == PINNED_LEFT
    assert mirror.tolist() == PINNED_MIRROR


PINNED_TOP = [2, 8, 4, 4, 2, 8]
PINNED_LEFT = [2, 6, 1, 4, 2, 5]
PINNED_MIRROR = [True, False, False, True, True, True]


def test_places_and_flips_are_uniform():
    # Seed 0, 90,000 draws. Each cell count is binomial; 4.5 standard errors for 163 cells:
    # false alarm 163 × 6.8e-6 ≈ 1e-3, and the seed is fixed.
    count = 90_000
    top, left, mirror = draws(count, seed=0, step=1, padding=4)
    cells = np.bincount(18 * top + 2 * left + mirror, minlength=162)
    share = 1 / 162
    error = np.sqrt(count * share * (1 - share))
    assert np.abs(cells - count * share).max() < 4.5 * error
    assert abs(int(mirror.sum()) - count / 2) < 4.5 * np.sqrt(count / 4)


def test_an_empty_batch_stays_empty():
    assert augment(images()[:0], seed=0, step=0).shape == (0, 3, 12, 9)


@pytest.mark.parametrize("bad", [torch.zeros(2, 3, 4, 4), torch.zeros(3, 4, 4, dtype=torch.uint8)])
def test_only_batches_of_bytes_are_augmented(bad):
    with pytest.raises(ConfigError, match="uint8 images of shape"):
        augment(bad, seed=0, step=0)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_named(seed):
    with pytest.raises(ConfigError, match=f"seed={seed}"):
        augment(images(), seed=seed, step=0)


def test_normalise_is_the_formula_and_keeps_its_input():
    batch, mean, std = images(), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    columns = [torch.tensor(values).view(1, 3, 1, 1) for values in (mean, std)]
    expected = (batch.float() / 255 - columns[0]) / columns[1]
    torch.testing.assert_close(normalise(batch, mean, std), expected)
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    torch.testing.assert_close(
        normalise(table, (2.0, 3.0), (1.0, 1.0)), torch.tensor([[-1.0, -1.0], [1.0, 1.0]])
    )
    assert table.tolist() == [[1.0, 2.0], [3.0, 4.0]]
