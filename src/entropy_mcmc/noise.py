r"""Gaussian noise as a pure function of (seed, stream, step, parameter, element).

The generator is Threefry-2x32 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy
as 1, 2, 3" (SC 2011): a bijection of a 64-bit counter under a 64-bit key, made of 32-bit additions,
rotations and exclusive-ors. It is used twice:

* The key of a step is Threefry-2x32-20 under the seed, of the counter (step, inner step, stream).
  Under one seed that map is one-to-one, so two steps or two streams never share a key.
* The bits of an element are Threefry-2x32-13 under that key, of the counter (parameter, element).
  Two parameters or two elements therefore never share a counter.

Each element gets 64 bits, and Box-Muller turns them into two independent standard normals: one for
θ, one for θ_a. Nothing is kept between calls: a resumed chain, a shard on another rank and a
compiled kernel all compute the same integers.

Limits: 2^40 steps, 2^16 inner steps, 2^8 streams, 2^22 parameters of 2^42 elements each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_count

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ELEMENT_ROUNDS = 13  # the fewest rounds that pass BigCrush; keys use the authors' 20
KEY_ROUNDS = 20
SCHEDULE_WORDS = 2 + 2 * (ELEMENT_ROUNDS // 4)  # of one step
SEED_LIMIT = 2**63  # so that a seed also fits a signed 64-bit integer and JSON
STEP_LIMIT = 2**40
INNER_LIMIT = 2**16
PARAMETER_LIMIT = 2**22
ELEMENT_LIMIT = 2**42
WORD = 2**32

_LEFT = tuple(np.uint32(bits) for bits in ROTATIONS)
_RIGHT = tuple(np.uint32(32 - bits) for bits in ROTATIONS)
HALF_ROOT_BITS = 0x3F3504F3  # of √½ in float32

Schedule = Sequence[Any]
"""Words of the key in the order in which the rounds add them: ints (eager) or 0-d tensors."""


def draw_seed() -> int:
    """Draw a seed from torch's default generator, so that `torch.manual_seed` governs it too."""
    return int(torch.randint(0, SEED_LIMIT - 1, (), dtype=torch.int64).item())


def check_seed(seed: object) -> int:
    """Return `seed` as an int in [0, 2^63), drawing one if it is None."""
    if seed is None:
        return draw_seed()
    number = check_count("seed", seed, least=0)
    if number >= SEED_LIMIT:
        raise ConfigError(f"seed must be less than 2**63, got seed={seed!r}")
    return number


def threefry2x32(schedule: Schedule, x0: Tensor, x1: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Encrypt the counters (x0, x1), int32 tensors whose bits stand for unsigned words."""
    x0 = x0 + schedule[0]
    x1 = x1 + schedule[1]
    for i in range(rounds):
        x0 = x0 + x1
        x1 = _rotate_left(x1, ROTATIONS[i % 8]) ^ x0
        if i % 4 == 3:
            injection = i // 4 * 2 + 2
            x0 = x0 + schedule[injection]
            x1 = x1 + schedule[injection + 1]
    return x0, x1


def _threefry_in_place(
    schedule: Schedule, x0: Tensor, x1: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    """`threefry2x32` for eager calls: the same integers, without a new tensor per operation."""
    run = _threefry_of_numpy if x0.device.type == "cpu" else _threefry_of_torch
    return run(schedule, x0, x1, rounds)


def _threefry_of_torch(
    schedule: Schedule, x0: Tensor, x1: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    x0, x1 = x0 + schedule[0], (x1 + schedule[1]).expand_as(x0).contiguous()
    left = torch.empty_like(x1)
    for i in range(rounds):
        bits = ROTATIONS[i % 8]
        x0 += x1
        torch.bitwise_left_shift(x1, bits, out=left)
        x1 >>= 32 - bits
        x1 &= (1 << bits) - 1
        x1 |= left
        x1 ^= x0
        if i % 4 == 3:
            injection = i // 4 * 2 + 2
            x0 += schedule[injection]
            x1 += schedule[injection + 1]
    return x0, x1


def _threefry_of_numpy(
    schedule: Schedule, x0: Tensor, x1: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    """On the CPU: NumPy has unsigned shifts, and calls that cost less."""
    words = [_unsigned(word) for word in schedule]
    first = np.add(_unsigned(x0), words[0])
    second, left = np.empty_like(first), np.empty_like(first)
    np.add(_unsigned(x1), words[1], out=second)
    for i in range(rounds):
        first += second
        np.left_shift(second, _LEFT[i % 8], out=left)
        np.right_shift(second, _RIGHT[i % 8], out=second)
        second |= left
        second ^= first
        if i % 4 == 3:
            injection = i // 4 * 2 + 2
            first += words[injection]
            second += words[injection + 1]
    return torch.from_numpy(first.view(np.int32)), torch.from_numpy(second.view(np.int32))


def _unsigned(word: Any) -> Any:
    return word.numpy().view(np.uint32) if isinstance(word, Tensor) else np.uint32(word % WORD)


def key_schedule(key: int, rounds: int) -> tuple[int, ...]:
    """Words that `threefry2x32` adds under a 64-bit `key`, as signed 32-bit integers."""
    words = (key % WORD, key >> 32, PARITY ^ (key % WORD) ^ (key >> 32))
    added = [words[0], words[1]]
    for i in range(1, rounds // 4 + 1):
        added += [words[i % 3], words[(i + 1) % 3] + i]
    return tuple(_signed(word) for word in added)


def step_schedule(seed: int, step: int, stream: int = 0, inner: int = 0) -> tuple[int, ...]:
    """Key schedule of one step: `step_schedule(seed, step)` feeds `normal_pair`.

    `stream` tells apart the kinds of noise that a sampler draws in one step, `inner` the steps of
    a nested chain.
    """
    if not (0 <= step < STEP_LIMIT and 0 <= inner < INNER_LIMIT and 0 <= stream < 256):
        raise ConfigError(
            f"noise needs 0 <= step < 2**40, 0 <= inner < 2**16 and 0 <= stream < 256, "
            f"got step={step}, inner={inner}, stream={stream}"
        )
    counter = step + inner * STEP_LIMIT + stream * STEP_LIMIT * INNER_LIMIT
    return key_schedule(_encrypt(seed, counter), ELEMENT_ROUNDS)


def step_schedules(
    seed: int, start: int, count: int, stream: int = 0, *, device: torch.device | None = None
) -> Tensor:
    """`step_schedule` of the steps start … start+count−1 at once: int32, one column per step.

    >>> step_schedules(seed=0, start=7, count=2)[:, 0].tolist() == list(step_schedule(0, 7))
    True
    """
    step_schedule(seed, start + max(count, 1) - 1, stream)  # refuses what is out of range
    steps = torch.arange(start, start + count, dtype=torch.int64, device=device)
    high = (steps >> 32) + stream * 2**24
    words = key_schedule(seed, KEY_ROUNDS)
    w0, w1 = _threefry_in_place(words, steps.to(torch.int32), high.to(torch.int32), KEY_ROUNDS)
    key = (w0, w1, w0 ^ w1 ^ PARITY)
    added = [w0, w1]
    for i in range(1, ELEMENT_ROUNDS // 4 + 1):
        added += [key[i % 3], key[(i + 1) % 3] + i]
    return torch.stack(added)


def counter_words(parameter: int, element: int) -> tuple[int, int]:
    """Counter of one element of one parameter, as two signed 32-bit integers."""
    if not (0 <= parameter < PARAMETER_LIMIT and 0 <= element < ELEMENT_LIMIT):
        raise ConfigError(
            f"noise needs 0 <= parameter < 2**22 and 0 <= element < 2**42, "
            f"got parameter={parameter}, element={element}"
        )
    low, high = _words(element)
    return _signed(low), _signed(parameter * 2**10 + high)


def counters(parameter: int, start: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Counters of the elements start … start+size−1: two int32 tensors that broadcast together."""
    low, high = counter_words(parameter, start)
    if counter_words(parameter, start + max(size, 1) - 1)[1] == high and low + size <= 2**31:
        first = torch.arange(low, low + size, dtype=torch.int32, device=device)
        return first, torch.full((), high, dtype=torch.int32, device=device)
    # The low word wraps at 2^31 of its signed form; past 2^32 elements the high word goes up.
    wide = torch.arange(low, low + size, dtype=torch.int64, device=device)
    carry = (wide + (WORD if low < 0 else 0)) >> 32
    return wide.to(torch.int32), (carry + high).to(torch.int32)


def box_muller(x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent standard normals from two independent words, in float32.

    The radius uses 31 bits and reaches 6.66; the angle uses all 32.
    """
    bits = ((x0 >> 1) & 0x7FFFFFFF).to(torch.float32)
    radius = bits.mul_(2.0**-31).add_(2.0**-32).log_().mul_(-2.0).sqrt_()
    angle = x1.to(torch.float32).mul_(math.pi / 2**31)
    first = torch.cos(angle).mul_(radius)
    return first, angle.sin_().mul_(radius)


def normal_pair(schedule: Schedule, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """Two independent standard normals for each counter (x0, x1), under one step's schedule.

    >>> x0, x1 = counters(parameter=3, start=0, size=2, device=torch.device("cpu"))
    >>> first, second = normal_pair(step_schedule(seed=0, step=7), x0, x1)
    >>> first.shape, second.dtype
    (torch.Size([2]), torch.float32)
    """
    eager = isinstance(schedule[0], int)  # chains give words of many keys, as tensors
    words = (_threefry_in_place if eager else threefry2x32)(schedule, x0, x1, ELEMENT_ROUNDS)
    return box_muller(*words)


def normal_rows(words: Schedule, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """`normal_pair` of several keys at once: words (key, 1), counters (1, element)."""
    x0 = x0.expand(len(words[0]), -1)
    return box_muller(*_threefry_in_place(words, x0, x1, ELEMENT_ROUNDS))


def rule_normals(
    pair: Callable[..., tuple[Tensor, Tensor]],
    schedule: Schedule,
    x0: Tensor,
    x1: Tensor,
    dtype: torch.dtype,
) -> Any:
    """What a rule takes as `eps`: a pair of normals, or two pairs under the schedules of two steps.

    `pair` is `normal_pair` or `compiled_normal_pair`; schedules of several steps are joined.
    """
    starts = range(0, len(schedule), SCHEDULE_WORDS)
    drawn = [pair(schedule[i : i + SCHEDULE_WORDS], x0, x1) for i in starts]
    cast = tuple((first.to(dtype), second.to(dtype)) for first, second in drawn)
    return cast[0] if len(cast) == 1 else cast


def polynomial_box_muller(x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """`box_muller` for compiled kernels, to 3e-6: polynomials inline where libm is called.

    The coefficients, lowest first, give the least largest error. −2·log(1+f) = f·P(f) for
    √½ <= 1+f <= √2, to 2e-7; cos(πt) = (1−4t²)·P(t²) and sin(πt) = t(1−t²)·P(t²) for |t| <= 1, to
    1e-8, where the factors carry the zeros, so that no quadrants need be told apart. They are
    literals in the body because dynamo makes a graph input of every float that it finds outside.
    """
    bits = _uniform(x0).view(torch.int32)
    exponent = (bits - HALF_ROOT_BITS) >> 23
    f = (bits - (exponent << 23)).view(torch.float32) - 1.0
    log = _horner(
        (
            -1.999999891,
            1.000007303,
            -0.6667011593,
            0.4993981108,
            -0.398003867,
            0.3450181118,
            -0.3244476712,
            0.2021279757,
        ),
        f,
    )
    radius = torch.sqrt(f * log + exponent.to(torch.float32) * -1.3862943611)
    t = x1.to(torch.float32) * 2.0**-31
    z = t * t
    cos = _horner(
        (
            0.99999998906,
            -0.93480140725,
            0.31949399837,
            -0.057209293777,
            0.0062541148434,
            -0.00040407885176,
        ),
        z,
    )
    sin = _horner(
        (
            3.1415926445,
            -2.0261194675,
            0.52403617606,
            -0.075187328791,
            0.0068602579285,
            -0.00038596428275,
        ),
        z,
    )
    return radius * ((1.0 - 4.0 * z) * cos), radius * (t * (1.0 - z) * sin)


def compiled_normal_pair(schedule: Schedule, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """`normal_pair` for compiled kernels: the same integers, normals equal to 1e-5."""
    return polynomial_box_muller(*threefry2x32(schedule, x0, x1, ELEMENT_ROUNDS))


def _uniform(x0: Tensor) -> Tensor:
    return ((x0 >> 1) & 0x7FFFFFFF).to(torch.float32) * 2.0**-31 + 2.0**-32


def _horner(series: Sequence[float], x: Tensor) -> Tensor:
    value = x * series[-1] + series[-2]
    for coefficient in reversed(series[:-2]):
        value = value * x + coefficient
    return value


def _rotate_left(x: Tensor, bits: int) -> Tensor:
    # `>>` on int32 drags the sign along; the mask drops those copies.
    return (x << bits) | ((x >> (32 - bits)) & ((1 << bits) - 1))


def _encrypt(key: int, counter: int) -> int:
    """`threefry2x32` on Python integers: tensors would cost half a millisecond a step."""
    schedule = key_schedule(key, KEY_ROUNDS)
    x0, x1 = ((word + added) % WORD for word, added in zip(_words(counter), schedule, strict=False))
    for i in range(KEY_ROUNDS):
        bits = ROTATIONS[i % 8]
        x0 = (x0 + x1) % WORD
        x1 = ((x1 << bits) % WORD | x1 >> (32 - bits)) ^ x0
        if i % 4 == 3:
            injection = i // 4 * 2 + 2
            x0 = (x0 + schedule[injection]) % WORD
            x1 = (x1 + schedule[injection + 1]) % WORD
    return x0 + WORD * x1


def _words(number: int) -> tuple[int, int]:
    return number % WORD, number >> 32


def _signed(word: int) -> int:
    """The signed 32-bit integer with the bits of `word` modulo 2^32."""
    return (word + 2**31) % WORD - 2**31
