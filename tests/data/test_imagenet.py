"""A tiny generated image folder: decode, crops seeded per image, workers, damaged files."""

import numpy as np
import pytest
import torch
from PIL import Image

from entropy_mcmc.data import ImageBatches, ImageFolder, load
from entropy_mcmc.data.imagenet import MEAN, STD, evaluation_image, training_image
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError

SIZES = [(300, 260), (260, 400), (90, 90), (500, 40)]


def gradient(width, height, shade):
    y, x = np.mgrid[0:height, 0:width]
    planes = [255 * x / width, 255 * y / height, np.full((height, width), shade)]
    return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8))


@pytest.fixture
def folder(tmp_path):
    for part in ("train", "val"):
        for label, name in enumerate(("n02", "n01", "n03")):
            place = tmp_path / "imagenet" / part / name
            place.mkdir(parents=True)
            for i, size in enumerate(SIZES):
                gradient(*size, 40 * label).save(place / f"{i}.JPEG", quality=95)
            (place / "notes.txt").write_text("not an image")
    return tmp_path / "imagenet"


def test_files_and_classes_are_sorted(folder):
    images = ImageFolder(folder)
    assert images.class_names == ("n01", "n02", "n03")
    assert [label for _, label in images.files] == [0] * 4 + [1] * 4 + [2] * 4
    assert [file.name for file, _ in images.files[:4]] == ["0.JPEG", "1.JPEG", "2.JPEG", "3.JPEG"]


def test_evaluation_takes_the_centre(folder):
    file, _ = ImageFolder(folder, "test").files[0]
    pixels = evaluation_image(file)
    assert pixels.shape == (3, 224, 224)
    assert pixels.dtype == torch.uint8
    # The centre of both gradients is half way, and 224 of 256 rows span 224/256 of it.
    rows = pixels[1].float().mean(dim=1)
    assert abs(float(rows.mean()) - 127.5) < 2
    assert abs(float(rows[-1] - rows[0]) - 255 * 223 / 256) < 3


def test_a_crop_depends_on_seed_epoch_and_image_only(folder):
    file, _ = ImageFolder(folder).files[0]
    base = training_image(file, seed=0, epoch=0, row=0)
    assert base.shape == (3, 224, 224)
    assert torch.equal(base, training_image(file, seed=0, epoch=0, row=0))
    for other in ({"seed": 1}, {"epoch": 1}, {"row": 1}):
        changed = training_image(file, **{"seed": 0, "epoch": 0, "row": 0, **other})
        assert not torch.equal(base, changed)


def test_half_of_the_crops_are_flipped(folder):
    # 400 crops, seed 0; 4.5 standard errors of a fair coin: false alarm 7e-6.
    file, _ = ImageFolder(folder).files[2]
    crops = [training_image(file, seed=0, epoch=0, row=row)[0].float() for row in range(400)]
    flipped = sum(bool(crop[:, 0].mean() > crop[:, -1].mean()) for crop in crops)
    assert abs(flipped - 200) < 4.5 * 10


def test_workers_resume_and_random_access_agree(folder):
    batches = ImageBatches(ImageFolder(folder), 4, seed=3)
    alone = list(batches.epoch(1))
    assert len(alone) == len(batches) == 3
    assert alone[0][0].shape == (4, 3, 224, 224)
    assert all(map(torch.equal, batches.batch(5), alone[2]))
    with_workers = list(ImageBatches(ImageFolder(folder), 4, seed=3, workers=1).epoch(1, first=1))
    assert len(with_workers) == 2
    for expected, actual in zip(alone[1:], with_workers, strict=True):
        assert all(map(torch.equal, expected, actual))


def test_ranks_share_a_batch(folder):
    whole = ImageBatches(ImageFolder(folder), 6, seed=1).batch(3)
    parts = [ImageBatches(ImageFolder(folder), 6, seed=1, rank=r, ranks=2).batch(3) for r in (0, 1)]
    for expected, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        assert torch.equal(torch.cat(pieces), expected)


def test_load_gives_a_few_images_in_memory(folder):
    data = load("imagenet", folder=folder.parent, split="test", limit=6)
    assert data.inputs.shape == (6, 3, 224, 224)
    assert data.targets.tolist() == [0, 0, 1, 1, 2, 2]
    in_order = ImageBatches(ImageFolder(folder, "test"), 12, augmented=False)
    inputs, targets = next(iter(in_order))
    assert targets.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert torch.equal(inputs[::2], data.normalise(data.inputs))
    assert (data.mean, data.std) == (MEAN, STD)
    with pytest.raises(ConfigError, match="limit"):
        load("imagenet", folder=folder.parent)


@pytest.mark.parametrize("content", [b"", b"rubbish"])
def test_a_damaged_image_is_named(folder, content):
    file = folder / "train/n01/0.JPEG"
    file.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"n01/0\.JPEG"):
        evaluation_image(file)


def test_a_truncated_image_and_a_bomb_are_refused(folder, monkeypatch):
    file = folder / "train/n01/0.JPEG"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedFileError, match="cannot be decoded"):
        evaluation_image(file)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60_000)
    with pytest.raises(DamagedFileError, match="cannot be decoded"):
        evaluation_image(folder / "train/n01/1.JPEG")


def test_grey_and_transparent_images_become_colour(folder):
    for mode in ("L", "RGBA", "P"):
        file = folder / f"train/n01/{mode}.png"
        gradient(256, 256, 9).convert(mode).save(file)
        assert evaluation_image(file).shape == (3, 224, 224)


def test_a_missing_folder_says_what_to_put_there(tmp_path):
    with pytest.raises(MissingFileError, match="one folder of images for each class"):
        len(ImageFolder(tmp_path))
    (tmp_path / "train/n01").mkdir(parents=True)
    with pytest.raises(MissingFileError, match="holds no images"):
        len(ImageFolder(tmp_path))
