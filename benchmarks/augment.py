"""Augmented CIFAR batches against a per-image Python loop: prints one JSON line.

Both make the same float batch of 128 images of 3 × 32 × 32 from bytes: random crop with padding 4,
flip, normalisation. One thread; the two take turns, so that a busy machine hurts both. The ratio
must be at least 20. `python benchmarks/augment.py [repeats]`
"""

import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from entropy_mcmc.data import augment, normalise
from entropy_mcmc.data.augment import draws

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCH, PADDING, SIDE = 128, 4, 32


def batched(images, step):
    return normalise(augment(images, seed=0, step=step, padding=PADDING), MEAN, STD)


def per_image(images, step):
    top, left, mirror = (
        numbers.tolist() for numbers in draws(len(images), seed=0, step=step, padding=PADDING)
    )
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    result = []
    for i, image in enumerate(images):
        if mirror[i]:
            image = image.flip(-1)
        padded = F.pad(image, (PADDING,) * 4)
        crop = padded[:, top[i] : top[i] + SIDE, left[i] : left[i] + SIDE]
        result.append(crop.float().div_(255).sub_(mean).div_(std))
    return torch.stack(result)


def seconds(function, images, step):
    start = time.perf_counter()
    function(images, step)
    return time.perf_counter() - start


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "quartiles": [low, high]}


def main(repeats):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shape = (BATCH, 3, SIDE, SIDE)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    torch.testing.assert_close(batched(images, 0), per_image(images, 0))
    pairs = [
        (seconds(batched, images, step), seconds(per_image, images, step))
        for step in range(repeats)
    ]
    fast, slow = zip(*pairs, strict=True)
    report = {
        "benchmark": "augment",
        "batch": BATCH,
        "repeats": repeats,
        "batched_ms": quartiles([1e3 * value for value in fast]),
        "per_image_ms": quartiles([1e3 * value for value in slow]),
        "ratio": quartiles([b / a for a, b in pairs]),
        "target": 20,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
