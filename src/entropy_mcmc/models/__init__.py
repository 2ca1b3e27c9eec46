"""Networks to sample: from logistic regression to ResNet-50.

Plain `torch.nn.Module`s that return logits, or mean and log variance for regression (see
`models.small`). Any module of your own works as well; nothing here is needed to use a sampler.

>>> from entropy_mcmc import models
>>> model = models.build("resnet20", outputs=100, norm="frn")
"""

from entropy_mcmc.models.blocks import BasicBlock, Bottleneck
from entropy_mcmc.models.norm import FilterResponseNorm2d, ThresholdedLinearUnit2d
from entropy_mcmc.models.registry import build, names, options
from entropy_mcmc.models.resnet import ResNet, resnet8, resnet18, resnet20, resnet50
from entropy_mcmc.models.small import MLP, LogisticRegression, SmallCNN

__all__ = [
    "MLP",
    "BasicBlock",
    "Bottleneck",
    "FilterResponseNorm2d",
    "LogisticRegression",
    "ResNet",
    "SmallCNN",
    "ThresholdedLinearUnit2d",
    "build",
    "names",
    "options",
    "resnet8",
    "resnet18",
    "resnet20",
    "resnet50",
]
