"""Corruptions: seeded per image, growing with severity, right against loops and closed forms."""

import colorsys
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import ndimage

from entropy_mcmc.data import corrupt, corruption_names, load
from entropy_mcmc.data.corruptions import blur, digital, severities, weather
from entropy_mcmc.data.corruptions.random_fields import Draws
from entropy_mcmc.errors import ConfigError

NAMES = corruption_names()
# The published constants do not make the mean squared distance grow for these:
# glass_blur (more smoothing undoes part of the jitter), motion_blur (3 and 4 share sigma),
# frost (the image's weight falls while the ice's stays), elastic_transform (the affine jitter
# shrinks), spatter (another liquid, another threshold), saturate (less, then more colour).
NOT_GROWING = {
    "glass_blur",
    "motion_blur",
    "frost",
    "elastic_transform",
    "spatter",
    "saturate",
}


def pictures(count=48, channels=3, side=32):
    """Smooth random pictures with edges: low-frequency fields, half of them cut by a step."""
    rng = np.random.Generator(np.random.Philox(7))
    noise = rng.standard_normal((count, channels, side, side))
    field = ndimage.gaussian_filter(noise, (0, 0, 2, 2))
    field = field / field.std() * 45 + 128
    # Not in the middle, where the boxes of `pixelate` would happen to meet.
    field[: count // 2, :, :, side // 2 - 3 :] -= 60
    return torch.from_numpy(np.clip(field, 0, 255).astype(np.uint8))


def floats(images):
    return images.permute(0, 2, 3, 1).numpy().astype(np.float32) / 255


def distance(a, b):
    return float((a.float() - b.float()).square().mean())


def draws(count=3, seed=0):
    return Draws(seed, np.arange(count), 0)


def test_there_are_nineteen_types_of_five_severities():
    assert len(set(NAMES)) == 19
    for name in NAMES:
        assert len(getattr(severities, name.upper())) == 5


@pytest.mark.parametrize("name", NAMES)
def test_shape_seed_and_subsets(name):
    images = pictures(9)
    before = images.clone()
    whole = corrupt(images, name, 3, seed=5)
    assert (whole.shape, whole.dtype) == (images.shape, torch.uint8)
    assert torch.equal(images, before)
    assert torch.equal(whole, corrupt(images, name, 3, seed=5))
    some = [7, 2]
    assert torch.equal(corrupt(images[some], name, 3, seed=5, indices=some), whole[some])
    assert not torch.equal(whole, images)


@pytest.mark.parametrize(
    "name",
    sorted(
        set(NAMES)
        - {
            "defocus_blur",
            "gaussian_blur",
            "zoom_blur",
            "contrast",
            "brightness",
            "saturate",
            "pixelate",
            "jpeg_compression",
        }
    ),
)
def test_random_types_change_with_seed_and_image(name):
    same = pictures(1).repeat(2, 1, 1, 1)
    result = corrupt(same, name, 5, seed=0)
    assert not torch.equal(result[0], result[1])
    assert not torch.equal(result, corrupt(same, name, 5, seed=1))


@pytest.mark.parametrize("name", sorted(set(NAMES) - NOT_GROWING))
def test_distance_grows_with_severity(name):
    images = pictures()
    steps = [distance(corrupt(images, name, s), images) for s in range(1, 6)]
    assert all(a < b for a, b in pairwise(steps)), steps


@pytest.mark.parametrize("name", sorted(NOT_GROWING))
def test_the_others_change_the_image_at_every_severity(name):
    images = pictures()
    assert all(distance(corrupt(images, name, s), images) > 1 for s in range(1, 6))


@pytest.mark.parametrize("name", NAMES)
def test_distance_on_real_images(data_folder, name):
    images = load("cifar10", folder=data_folder, split="test", limit=100).inputs
    steps = [distance(corrupt(images, name, s), images) for s in range(1, 6)]
    assert min(steps) > 1
    if name not in NOT_GROWING:
        assert all(a < b for a, b in pairwise(steps)), steps


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(2, 1, 28, 28), (2, 3, 20, 33), (2, 1, 8, 8)])
def test_grey_and_other_sizes(name, shape):
    images = torch.full(shape, 90, dtype=torch.uint8)
    images[..., 3:6] = 200
    assert corrupt(images, name, 5).shape == shape


@pytest.mark.parametrize("value", [0, 255])
@pytest.mark.parametrize("name", NAMES)
def test_black_and_white_images_do_not_fail(name, value):
    images = torch.full((2, 3, 16, 16), value, dtype=torch.uint8)
    for severity in (1, 5):
        assert corrupt(images, name, severity).shape == images.shape


def test_noise_has_the_published_size():
    # 64 × 3072 = 196,608 values at mid-grey (no clipping at these sizes): the standard error of a
    # standard deviation is 1/√(2n) = 0.16 %, of an impulse rate 0.9 %; 4.5 of them, seed fixed,
    # false alarm 7e-6 each. Truncation to bytes adds a variance of 1/12.
    images = torch.full((64, 3, 32, 32), 128, dtype=torch.uint8)
    count, grey = images.numel(), 128 / 255
    expected = {
        "gaussian_noise": severities.GAUSSIAN_NOISE[0] * 255,
        "shot_noise": 255 * (grey / severities.SHOT_NOISE[0]) ** 0.5,
        "speckle_noise": severities.SPECKLE_NOISE[0] * 128,
    }
    for name, size in expected.items():
        spread = float(corrupt(images, name, 1).float().std())
        assert abs(spread / (size**2 + 1 / 12) ** 0.5 - 1) < 4.5 / (2 * count) ** 0.5, name
    rate = severities.IMPULSE_NOISE[4]
    changed = corrupt(images, "impulse_noise", 5)
    for value in (0, 255):
        share = float((changed == value).float().mean())
        assert abs(share - rate / 2) < 4.5 * (rate / 2 / count) ** 0.5


def test_glass_is_the_published_loop_over_views():
    images = floats(pictures(3))
    sigma, reach, rounds = severities.GLASS_BLUR[4]
    source = draws()
    expected = np.floor(blur.gaussian(images, sigma) * np.float32(255)) / np.float32(255)
    for _ in range(rounds):
        shifts = np.floor(source.uniform(-reach, reach, 2, 32, 32)).astype(int)
        for image, shift in zip(expected, shifts, strict=True):
            for h in range(32 - reach, reach, -1):
                for w in range(32 - reach, reach, -1):
                    other = h + shift[0, h, w], w + shift[1, h, w]
                    image[h, w], image[other] = image[other], image[h, w]
    assert np.array_equal(blur.glass_blur(images, 5, draws()), blur.gaussian(expected, sigma))


def test_smear_equals_a_loop():
    images = floats(pictures(2, side=16))
    radius, sigma, degrees = 3, 1.5, np.array([30.0, -100.0], dtype=np.float32)
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    expected = np.zeros_like(images)
    for n, angle in enumerate(np.deg2rad(degrees.astype(float))):
        for k, weight in enumerate(weights):
            dy, dx = np.ceil(k * np.sin(angle) - 0.5), np.ceil(k * np.cos(angle) - 0.5)
            for y in range(16):
                for x in range(16):
                    at = int(np.clip(y + dy, 0, 15)), int(np.clip(x + dx, 0, 15))
                    expected[n, y, x] += weight * images[n][at]
    np.testing.assert_allclose(blur.smear(images, radius, sigma, degrees), expected, atol=1e-5)


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.07, 1.25, 2.25])
def test_zoom_equals_scipy(factor):
    images = floats(pictures(2))
    cut = int(np.ceil(32 / factor))
    top = (32 - cut) // 2
    for image, actual in zip(images, blur.clipped_zoom(images, factor), strict=True):
        part = image[top : top + cut, top : top + cut]
        large = ndimage.zoom(part, (factor, factor, 1), order=1)
        trim = (large.shape[0] - 32) // 2
        np.testing.assert_allclose(actual, large[trim : trim + 32, trim : trim + 32], atol=1e-5)


@pytest.mark.parametrize("pair", severities.DEFOCUS_BLUR)
def test_the_disk_keeps_the_total_light(pair):
    kernel = blur.disk(*pair)
    assert kernel.sum() == pytest.approx(1, abs=1e-6)
    assert np.allclose(kernel, kernel.T)
    assert np.allclose(kernel, kernel[::-1])


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_brightness_and_saturation_equal_colorsys(severity):
    images = floats(pictures(1, side=8))
    images[0, 0, 0], images[0, 0, 1] = 0, 0.5  # black and grey: no hue
    added = severities.BRIGHTNESS[severity - 1]
    factor, shift = severities.SATURATE[severity - 1]
    lit = digital.brightness(images, severity, draws(1))
    coloured = digital.saturate(images, severity, draws(1))
    for y in range(8):
        for x in range(8):
            h, s, v = colorsys.rgb_to_hsv(*map(float, images[0, y, x]))
            np.testing.assert_allclose(
                lit[0, y, x], colorsys.hsv_to_rgb(h, s, min(v + added, 1)), atol=1e-5
            )
            strong = min(s * factor + shift, 1)
            np.testing.assert_allclose(
                coloured[0, y, x], colorsys.hsv_to_rgb(h, strong, v), atol=1e-5
            )


def test_sampling_equals_scipy():
    images = floats(pictures(2, side=16))
    rng = np.random.Generator(np.random.Philox(3))
    grid = rng.uniform(-6, 21, (2, 2, 16, 16))
    sampled = digital._sample(images, grid)
    for n in range(2):
        for c in range(3):
            plane = ndimage.map_coordinates(
                images[n, ..., c].astype(float), grid[n], order=1, mode="mirror"
            )
            np.testing.assert_allclose(sampled[n, ..., c], plane, atol=1e-4)


def test_plasma_fills_the_range_and_is_smooth():
    field = weather.plasma(32, 3.0, draws())
    assert field.shape == (3, 32, 32)
    assert field.min(axis=(1, 2)).tolist() == [0, 0, 0]
    assert field.max(axis=(1, 2)).tolist() == [1, 1, 1]
    assert np.abs(np.diff(field, axis=1)).mean() < 0.2


def test_frost_says_that_it_is_procedural():
    assert "PROCEDURAL" in weather.frost.__doc__


def test_bad_arguments_are_named():
    images = pictures(2)
    with pytest.raises(ConfigError, match="'rain'"):
        corrupt(images, "rain", 1)
    with pytest.raises(ConfigError, match="severity=0"):
        corrupt(images, "fog", 0)
    with pytest.raises(ConfigError, match="uint8"):
        corrupt(images.float(), "fog", 1)
    with pytest.raises(ConfigError, match="indices must be 2"):
        corrupt(images, "fog", 1, indices=[1])
