"""The residual blocks of ResNets: an input, plus what a few convolutions add to it."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from entropy_mcmc.models.norm import activation_layer, norm_layer

SHORTCUTS = ("pad", "conv")


class PadShortcut(nn.Module):
    """He's option A, free of parameters: every second pixel, missing channels filled with zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: Tensor) -> Tensor:
        """Map `(n, inputs, h, w)` to `(n, outputs, ⌈h/stride⌉, ⌈w/stride⌉)`."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions plus the shortcut: activation(bn2(conv2(…)) + shortcut).

    Args:
        inputs: Channels that come in.
        width: Channels that go out.
        stride: 2 halves the picture.
        norm: `"bn"` or `"frn"`.
        shortcut: `"pad"` (option A) or `"conv"` (option B); used only where the shape changes.
    """

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, width: int, stride: int, norm: str, shortcut: str) -> None:
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride)
        self.bn1 = norm_layer(norm, width)
        self.act1 = activation_layer(norm, width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = norm_layer(norm, width)
        self.downsample = _shortcut(inputs, width, stride, norm, shortcut)
        self.act2 = activation_layer(norm, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(n, inputs, h, w)` to `(n, width, ⌈h/stride⌉, ⌈w/stride⌉)`."""
        out = self.act1(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        activated: Tensor = self.act2(out + self.downsample(x))
        return activated


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride, as in torchvision), 1×1 to four times the width, plus shortcut.

    Arguments as for `BasicBlock`; `4 * width` channels go out.
    """

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, width: int, stride: int, norm: str, shortcut: str) -> None:
        super().__init__()
        outputs = self.expansion * width
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = norm_layer(norm, width)
        self.act1 = activation_layer(norm, width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = norm_layer(norm, width)
        self.act2 = activation_layer(norm, width)
        self.conv3 = conv(width, outputs, 1)
        self.bn3 = norm_layer(norm, outputs)
        self.downsample = _shortcut(inputs, outputs, stride, norm, shortcut)
        self.act3 = activation_layer(norm, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(n, inputs, h, w)` to `(n, 4·width, ⌈h/stride⌉, ⌈w/stride⌉)`."""
        out = self.act1(self.bn1(self.conv1(x)))
        out = self.act2(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        activated: Tensor = self.act3(out + self.downsample(x))
        return activated


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the side at stride 1, without bias (a norm with a shift follows)."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int, norm: str, shortcut: str) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if shortcut == "pad":
        return PadShortcut(inputs, outputs, stride)
    return nn.Sequential(conv(inputs, outputs, 1, stride), norm_layer(norm, outputs))
