"""Data sets in their official formats, seeded batches, augmentation and corruptions."""

from entropy_mcmc.data.augment import augment
from entropy_mcmc.data.batches import Batches, order
from entropy_mcmc.data.columns import from_columns
from entropy_mcmc.data.corruptions import corrupt
from entropy_mcmc.data.corruptions import names as corruption_names
from entropy_mcmc.data.dataset import Dataset, normalise
from entropy_mcmc.data.download import download
from entropy_mcmc.data.imagenet import ImageBatches, ImageFolder
from entropy_mcmc.data.registry import load, names

__all__ = [
    "Batches",
    "Dataset",
    "ImageBatches",
    "ImageFolder",
    "augment",
    "corrupt",
    "corruption_names",
    "download",
    "from_columns",
    "load",
    "names",
    "normalise",
    "order",
]
