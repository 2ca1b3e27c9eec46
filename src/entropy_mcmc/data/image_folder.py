"""A folder of small images by class, read into memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc.data.columns import Encoder, finished, pixel_statistics
from entropy_mcmc.data.dataset import Dataset, Split
from entropy_mcmc.data.held_out import held_out
from entropy_mcmc.data.imagenet import decode
from entropy_mcmc.errors import ConfigError, MissingFileError, check_count

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp"}
TRAIN, TEST = ("train",), ("test", "val", "valid", "validation")
SIDE = 32
MOST_BYTES = 2 << 30
Files = list[tuple[Path, str]]


def read(folder: Path, split: Split, *, side: int | None, test: float, index: int) -> Dataset:
    """Read `folder/train/CLASS/*` and `folder/test/CLASS/*`, or split `folder/CLASS/*`.

    Args:
        folder: Where the images are.
        split: "train" or "test".
        side: Height and width that every image is resized to; 32 by default.
        test: Part of the images that is held out, where the folder has no test images.
        index: Number of that random split.
    """
    train, held = _parts(folder, test, index)
    names = tuple(sorted({name for _, name in train}))
    unknown = sorted({name for _, name in held} - set(names))
    if len(names) < 2 or unknown:
        raise ConfigError(
            f"{folder} must have a folder of images for each of two or more classes, and the same "
            f"ones to train and to test, got {', '.join(names) or 'none'}"
            + (f" to train and also {', '.join(unknown)} to test" if unknown else "")
        )
    size = SIDE if side is None else check_count("side", side)
    _check_memory(folder, len(train) + len(held), size)
    grey = all(_is_grey(file) for file, _ in train + held)
    encoder = Encoder({"image": ()}, "class", names)
    base = _set(folder.name, train, size, grey, encoder)
    if split == "train":
        return base
    part = _set(folder.name, held, size, grey, encoder)
    return replace(base, inputs=part.inputs, targets=part.targets)


def _parts(folder: Path, test: float, index: int) -> tuple[Files, Files]:
    train = next((folder / name for name in TRAIN if (folder / name).is_dir()), None)
    if train is not None:
        held = next((folder / name for name in TEST if (folder / name).is_dir()), None)
        if held is None:
            raise MissingFileError(
                f"{folder} has train/ and no {', '.join(f'{name}/' for name in TEST)}; add one, or "
                "put the class folders directly into it to have a part held out"
            )
        return _files(train), _files(held)
    everything = _files(folder)
    flags = held_out(len(everything), test, index)
    marked = list(zip(everything, flags.tolist(), strict=True))
    return [f for f, flag in marked if not flag], [f for f, flag in marked if flag]


def _files(folder: Path) -> Files:
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    files = [
        (file, place.name)
        for place in classes
        for file in sorted(place.iterdir())
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise MissingFileError(
            f"{folder} holds no images: put them into {folder}/CLASS, as "
            f"{', '.join(sorted(SUFFIXES))} files"
        )
    return files


def _check_memory(folder: Path, images: int, side: int) -> None:
    if images * side * side * 3 > MOST_BYTES:
        raise ConfigError(
            f"{images} images of side={side} need more than {MOST_BYTES >> 30} GiB; use a smaller "
            f"side, or stream them: entropy_mcmc.data.ImageBatches(ImageFolder({str(folder)!r}), …)"
        )


def _is_grey(file: Path) -> bool:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            return image.mode in ("1", "L", "LA")
    except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError):
        return False  # reading it says what is wrong


def _set(name: str, files: Files, side: int, grey: bool, encoder: Encoder) -> Dataset:
    images = torch.stack([_image(file, side, grey) for file, _ in files])
    targets = torch.tensor([encoder.class_names.index(label) for _, label in files])
    return finished(name, images, targets, pixel_statistics(images), encoder)


def _image(file: Path, side: int, grey: bool) -> Tensor:
    from PIL import Image

    image = decode(file).convert("L" if grey else "RGB")
    if image.size != (side, side):
        image = image.resize((side, side), Image.Resampling.BILINEAR)
    pixels = np.array(image)
    return torch.from_numpy(pixels[None] if grey else pixels.transpose(2, 0, 1).copy())
