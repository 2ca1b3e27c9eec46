"""Residual networks (He et al., 2016) for CIFAR and ImageNet, with batch norm or FRN.

Module names are those of torchvision's ResNets (`conv1`, `bn1`, `layer1.0.downsample.0`, `fc`), so
that published ImageNet weights of ResNet-50 load by name; with `norm="frn"` the `bn` modules hold
`FilterResponseNorm2d`. Convolutions are drawn by He's rule (normal, fan-out).
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from entropy_mcmc.errors import check_choice, check_count
from entropy_mcmc.models.blocks import SHORTCUTS, BasicBlock, Bottleneck, conv
from entropy_mcmc.models.norm import NORMS, activation_layer, norm_layer

STEMS = ("cifar", "imagenet")


class ResNet(nn.Module):
    """A stem, stages of residual blocks, the mean over all pixels, and a linear layer.

    Every stage but the first halves the picture. `resnet8`, `resnet20`, `resnet18` and `resnet50`
    choose the numbers; use this class for others.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        blocks: Number of blocks in every stage.
        widths: Width of every stage; the stem has as many channels as the first.
        outputs: Number of classes.
        in_channels: Channels of the pictures, 3 for colour.
        norm: `"bn"` or `"frn"`.
        shortcut: Where the shape changes: `"pad"` (He's option A, zero padding, no parameters) or
            `"conv"` (option B, 1×1 convolution and norm).
        stem: `"cifar"` (one 3×3 convolution) or `"imagenet"` (7×7, stride 2, max-pooling).
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        blocks: tuple[int, ...],
        widths: tuple[int, ...],
        *,
        outputs: int,
        in_channels: int = 3,
        norm: str = "bn",
        shortcut: str = "conv",
        stem: str = "cifar",
    ) -> None:
        super().__init__()
        check_choice("norm", norm, NORMS)
        check_choice("shortcut", shortcut, SHORTCUTS)
        check_choice("stem", stem, STEMS)
        small = stem == "cifar"
        colours = check_count("in_channels", in_channels)
        self.conv1 = conv(colours, widths[0], 3) if small else conv(colours, widths[0], 7, 2)
        self.bn1 = norm_layer(norm, widths[0])
        self.act1 = activation_layer(norm, widths[0])
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        self.stages = [f"layer{number}" for number in range(1, len(widths) + 1)]
        inputs = widths[0]
        for index, (name, count, width) in enumerate(zip(self.stages, blocks, widths, strict=True)):
            strides = [1 if index == 0 else 2] + [1] * (count - 1)
            stage = nn.Sequential()
            for stride in strides:
                stage.append(block(inputs, width, stride, norm, shortcut))
                inputs = block.expansion * width
            self.add_module(name, stage)
        self.fc = nn.Linear(inputs, check_count("outputs", outputs))
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures `(n, in_channels, height, width)` to logits `(n, outputs)`; any side."""
        out = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for name in self.stages:
            out = self.get_submodule(name)(out)
        return cast(Tensor, self.fc(out.mean(dim=(2, 3))))


def resnet8(
    outputs: int = 10, in_channels: int = 3, norm: str = "bn", shortcut: str = "pad"
) -> ResNet:
    """ResNet-8 of He's CIFAR family: 6n+2 layers with n = 1; 16, 32, 64 channels.

    The shortcut is He's option A (zero padding) unless `shortcut="conv"` asks for option B.

    >>> sum(p.numel() for p in resnet8().parameters())
    75290
    """
    return _he_cifar(1, outputs, in_channels, norm, shortcut)


def resnet20(
    outputs: int = 10, in_channels: int = 3, norm: str = "bn", shortcut: str = "pad"
) -> ResNet:
    """ResNet-20 of He's CIFAR family: 6n+2 layers with n = 3; 16, 32, 64 channels.

    The shortcut is He's option A (zero padding) unless `shortcut="conv"` asks for option B.

    >>> sum(p.numel() for p in resnet20().parameters())
    269722
    """
    return _he_cifar(3, outputs, in_channels, norm, shortcut)


def resnet18(outputs: int = 10, in_channels: int = 3, norm: str = "bn") -> ResNet:
    """ResNet-18 with a CIFAR stem, the paper's network: 64 to 512 channels, 1×1 shortcuts.

    With batch norm and 10 outputs it has 11,173,962 parameters in 62 tensors. The shortcut is
    option B (1×1 convolution and norm).
    """
    return ResNet(
        BasicBlock,
        (2, 2, 2, 2),
        (64, 128, 256, 512),
        outputs=outputs,
        in_channels=in_channels,
        norm=norm,
    )


def resnet50(outputs: int = 1000, in_channels: int = 3, norm: str = "bn") -> ResNet:
    """ResNet-50 for ImageNet (224×224): 25,557,032 parameters with batch norm and 1000 outputs.

    Bottleneck blocks with the stride in the 3×3 convolution ("v1.5"), shortcut option B.
    """
    return ResNet(
        Bottleneck,
        (3, 4, 6, 3),
        (64, 128, 256, 512),
        outputs=outputs,
        in_channels=in_channels,
        norm=norm,
        stem="imagenet",
    )


def _he_cifar(n: int, outputs: int, in_channels: int, norm: str, shortcut: str) -> ResNet:
    return ResNet(
        BasicBlock,
        (n, n, n),
        (16, 32, 64),
        outputs=outputs,
        in_channels=in_channels,
        norm=norm,
        shortcut=shortcut,
    )


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
