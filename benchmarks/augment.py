"""Augmented CIFAR batches against per-image Python loops: prints one JSON line.

All make the same float batch of 128 images of 3 × 32 × 32 from bytes: random crop with padding 4,
flip, normalisation. `pillow_loop` is the usual pipeline (one Pillow image at a time: pad, crop,
flip, to tensor, normalise, stack): the target, a ratio of at least 20, is against it.
`tensor_loop` does the same with one small tensor at a time, written as tightly as PyTorch allows;
its ratio is reported beside. One thread; blocks of 10 batches take turns, so that a busy machine
hurts all alike. `python benchmarks/augment.py [blocks]`
"""

import json
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps

from entropy_mcmc.data import augment, normalise
from entropy_mcmc.data.augment import draws

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
COLUMNS = [torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD)]
BATCH, PADDING, SIDE, BLOCK = 128, 4, 32, 10


def batched(images, step):
    return normalise(augment(images, seed=0, step=step, padding=PADDING), MEAN, STD)


def places(images, step):
    numbers = draws(len(images), seed=0, step=step, padding=PADDING)
    return zip(images, *(values.tolist() for values in numbers), strict=True)


def tensor_loop(images, step):
    result = []
    for image, top, left, mirror in places(images, step):
        turned = image.flip(-1) if mirror else image
        crop = F.pad(turned, (PADDING,) * 4)[:, top : top + SIDE, left : left + SIDE]
        result.append(crop.float().div_(255).sub_(COLUMNS[0]).div_(COLUMNS[1]))
    return torch.stack(result)


def pillow_loop(images, step):
    result = []
    for pixels, top, left, mirror in places(images.permute(0, 2, 3, 1).numpy(), step):
        picture = Image.fromarray(np.ascontiguousarray(pixels))
        if mirror:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        picture = ImageOps.expand(picture, PADDING)
        picture = picture.crop((left, top, left + SIDE, top + SIDE))
        tensor = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()
        result.append(tensor.float().div_(255).sub_(COLUMNS[0]).div_(COLUMNS[1]))
    return torch.stack(result)


def milliseconds(function, images, block):
    start = time.perf_counter()
    for step in range(block * BLOCK, (block + 1) * BLOCK):
        function(images, step)
    return 1e3 * (time.perf_counter() - start) / BLOCK


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}


def main(blocks):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    shape = (BATCH, 3, SIDE, SIDE)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    ways = (batched, pillow_loop, tensor_loop)
    for way in ways:
        torch.testing.assert_close(way(images, 0), batched(images, 0))
    times = [[milliseconds(way, images, block) for way in ways] for block in range(blocks)]
    fast, pillow, tensor = zip(*times, strict=True)
    report = {
        "benchmark": "augment",
        "batch": BATCH,
        "blocks": blocks,
        "batched_ms": quartiles(fast),
        "pillow_loop_ms": quartiles(pillow),
        "tensor_loop_ms": quartiles(tensor),
        "ratio": quartiles([b / a for a, b in zip(fast, pillow, strict=True)]),
        "ratio_tensor_loop": quartiles([b / a for a, b in zip(fast, tensor, strict=True)]),
        "target": 20,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
