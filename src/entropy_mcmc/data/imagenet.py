"""ImageNet-style folders: decode and resize with Pillow in worker processes, seeded per image."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from entropy_mcmc.data import streams
from entropy_mcmc.data.batches import check_split, order, steps_per_epoch
from entropy_mcmc.data.dataset import Dataset, Split, normalise
from entropy_mcmc.data.local_files import damaged
from entropy_mcmc.errors import ConfigError, MissingFileError, check_choice, check_count

if TYPE_CHECKING:
    from PIL.Image import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SUFFIXES = {".jpeg", ".jpg", ".png"}
_SIDE, _RESIZE = 224, 256
_ATTEMPTS = 10
_REMEDY = "replace it or take it out of the folder"
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class ImageFolder:
    """Images by class: `folder/train/CLASS/*.JPEG` and `folder/val/CLASS/*.JPEG`.

    The classes are the sorted names of the folders, numbered from 0.
    """

    folder: Path
    split: Split = "train"

    def __post_init__(self) -> None:
        check_choice("split", self.split, ("train", "test"))

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The sorted names of the class folders."""
        return tuple(sorted(entry.name for entry in self._place.iterdir() if entry.is_dir()))

    @cached_property
    def files(self) -> tuple[tuple[Path, int], ...]:
        """Every image with its class, in a fixed order."""
        images = [
            (file, label)
            for label, name in enumerate(self.class_names)
            for file in sorted((self._place / name).iterdir())
            if file.suffix.lower() in _SUFFIXES
        ]
        if not images:
            raise MissingFileError(
                f"{self._place} holds no images: put them in {self._place}/CLASS"
            )
        return tuple(images)

    def __len__(self) -> int:
        return len(self.files)

    def head(self, limit: int) -> Dataset:
        """Return images spread evenly over the files as one set in memory, prepared to evaluate."""
        count = min(check_count("limit", limit), len(self))
        rows = [index * len(self) // count for index in range(count)]
        inputs = torch.stack([evaluation_image(self.files[row][0]) for row in rows])
        targets = torch.tensor([self.files[row][1] for row in rows])
        classes = len(self.class_names)
        return Dataset("imagenet", inputs, targets, "classification", classes, MEAN, STD)

    @property
    def _place(self) -> Path:
        place = Path(self.folder) / ("train" if self.split == "train" else "val")
        if not place.is_dir():
            raise MissingFileError(
                f"{place} is not there: put one folder of images for each class into it "
                "(ImageNet must be asked for at image-net.org)"
            )
        return place


@dataclass(frozen=True)
class ImageBatches:
    """Streamed batches of an `ImageFolder`, with the interface of `Batches`.

    Args:
        images: The folder.
        batch_size: Rows of the global batch.
        seed: Of the order and of the crops; an image's crop depends on (seed, epoch, image).
        augmented: Shuffle, random resized crop and flip; else in order, resize and centre crop.
        workers: Processes that decode; 0 decodes in this one.
        drop_last: Leave out the last, incomplete batch.
        rank: Which slice of each batch this process gets.
        ranks: How many slices there are.
        side: Height and width of the images that the network gets.
    """

    images: ImageFolder
    batch_size: int
    seed: int = 0
    augmented: bool = True
    workers: int = 0
    drop_last: bool = True
    rank: int = 0
    ranks: int = 1
    side: int = _SIDE

    def __post_init__(self) -> None:
        check_split(self.batch_size, self.rank, self.ranks)
        check_count("side", self.side)
        if not len(self):
            raise ConfigError(
                f"batch_size must be at most {len(self.images)}, the number of images, got "
                f"batch_size={self.batch_size}; or pass drop_last=False"
            )

    def __len__(self) -> int:
        return steps_per_epoch(len(self.images), self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one epoch, from its batch number `first` on."""
        places = [self._rows(epoch, position) for position in range(first, len(self))]
        decoder = self._decoder(epoch)
        for pixels, targets in DataLoader(decoder, batch_sampler=places, num_workers=self.workers):
            yield normalise(pixels, MEAN, STD), targets

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of one step, decoded in this process."""
        epoch, position = divmod(check_count("step", step, least=0), len(self))
        decoder = self._decoder(epoch)
        items = [decoder[row] for row in self._rows(epoch, position)]
        pixels = torch.stack([item[0] for item in items])
        return normalise(pixels, MEAN, STD), torch.tensor([item[1] for item in items])

    def _decoder(self, epoch: int) -> _Decoder:
        seed = self.seed if self.augmented else None
        return _Decoder(self.images.files, seed, epoch, self.side)

    def _rows(self, epoch: int, position: int) -> list[int]:
        count, share = len(self.images), self.batch_size // self.ranks
        start = position * self.batch_size + self.rank * share
        everything = order(self.seed, epoch, count) if self.augmented else torch.arange(count)
        rows: list[int] = everything[start : start + share].tolist()
        return rows


class _Decoder(TorchDataset[tuple[Tensor, int]]):
    def __init__(
        self, files: tuple[tuple[Path, int], ...], seed: int | None, epoch: int, side: int
    ) -> None:
        self.files, self.seed, self.epoch, self.side = files, seed, epoch, side

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        file, label = self.files[row]
        if self.seed is None:
            return evaluation_image(file, self.side), label
        seed, epoch = self.seed, self.epoch
        return training_image(file, seed=seed, epoch=epoch, row=row, side=self.side), label


def training_image(file: Path, *, seed: int, epoch: int, row: int, side: int = _SIDE) -> Tensor:
    """Return a random resized crop (area 8 … 100 %, ratio 3/4 … 4/3), flipped half of the time."""
    from PIL import Image

    image = decode(file)
    numbers = streams.unit(streams.words(seed, streams.IMAGE, (epoch, row), 4 * _ATTEMPTS + 1))
    box = _random_box(image.width, image.height, numbers[1:])
    crop = image.resize((side, side), Image.Resampling.BILINEAR, box=box)
    if numbers[0] < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _tensor(crop)


def evaluation_image(file: Path, side: int = _SIDE) -> Tensor:
    """Return the central `side` × `side` pixels after the shorter side was resized to 8/7 of it."""
    from PIL import Image

    image = decode(file)
    shorter = min(image.size)
    least = round(_RESIZE * side / _SIDE)
    width, height = (max(least, round(least * length / shorter)) for length in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return _tensor(image.crop((left, top, left + side, top + side)))


def _random_box(width: int, height: int, numbers: np.typing.NDArray[np.float64]) -> Box:
    for area, ratio, x, y in numbers.reshape(-1, 4):
        target = width * height * (0.08 + 0.92 * area)
        aspect = math.exp(math.log(3 / 4) + ratio * math.log(16 / 9))
        wide, tall = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(x * (width - wide + 1)), int(y * (height - tall + 1))
            return left, top, left + wide, top + tall
    # A very long image fits no box: its central square then.
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def decode(file: Path) -> Image:
    """Return an image file in RGB; one that is damaged, or suspiciously large, raises."""
    from PIL import Image

    try:
        # Pillow only warns of images that are suspiciously large for their file: refuse them.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                return image.convert("RGB")
    except FileNotFoundError as error:
        raise MissingFileError(f"{file} is not there any more: list the folder again") from error
    except (
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        raise damaged(file, f"it cannot be decoded ({error})", _REMEDY) from error


def _tensor(image: Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
