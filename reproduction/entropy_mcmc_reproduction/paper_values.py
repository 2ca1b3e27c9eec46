"""Numbers of the paper's tables, to stand beside ours: by data set, measure and method."""

from __future__ import annotations

_METHODS = ("SGD", "Entropy-SGD", "SAM", "bSAM", "SGLD", "Entropy-SGLD", "EMCMC")
_UNBOUND = tuple(name for name in _METHODS if name != "bSAM")  # Table 2 and calibration lack it


def _by(methods: tuple[str, ...], *values: float) -> dict[str, float]:
    return dict(zip(methods, values, strict=True))


# ResNet-18, all pictures, 200 passes, augmented. Table 1a; Table 2 (SVHN); the calibration table.
CIFAR = {
    "cifar10": {
        "nll": _by(_METHODS, 0.205, 0.184, 0.166, 0.165, 0.167, 0.194, 0.162),
        "accuracy": _by(_METHODS, 94.87, 95.11, 95.25, 95.53, 95.47, 94.46, 95.69),
        "auroc": _by(_UNBOUND, 98.30, 98.71, 94.23, 97.66, 90.07, 98.15),
        "ece": _by(_UNBOUND, 2.94, 2.46, 1.45, 0.78, 0.33, 0.52),
    },
    "cifar100": {
        "nll": _by(_METHODS, 0.935, 0.895, 0.876, 0.870, 0.854, 0.897, 0.840),
        "accuracy": _by(_METHODS, 76.49, 77.45, 78.41, 78.92, 78.79, 77.98, 79.16),
        "auroc": _by(_UNBOUND, 71.96, 79.15, 74.56, 72.51, 71.83, 81.14),
        "ece": _by(_UNBOUND, 6.41, 5.75, 5.81, 2.15, 1.66, 3.59),
    },
}
# Table 1b: accuracy, mean over types of corruption, at severity 1 to 5.
CORRUPTED = {
    "SGD": (88.43, 82.43, 76.20, 67.93, 55.81),
    "SGLD": (88.61, 82.46, 76.49, 69.19, 56.98),
    "EMCMC": (88.87, 83.27, 77.44, 70.31, 58.17),
}
# Table 1c: NLL and top-1 accuracy.
IMAGENET = {
    "nll": {"SGD": 0.960, "SGLD": 0.921, "EMCMC": 0.895},
    "accuracy": {"SGD": 76.046, "SGLD": 76.676, "EMCMC": 77.096},
}
PER_CENT = ("accuracy", "auroc", "ece")


def against(measure: str, values: dict[str, float], rival: str, ours: str = "EMCMC") -> str:
    """Ours and a rival's number in words; empty where the paper has none.

    >>> against("nll", CIFAR["cifar10"]["nll"], "SGD"), against("nll", {}, "SGD")
    ('0.162 against 0.205', '')
    """
    if ours not in values or rival not in values:
        return ""
    digits, unit = (2, " %") if measure in PER_CENT else (3, "")
    name = {"accuracy": "accuracy ", "auroc": "AUROC ", "ece": "ECE "}.get(measure, "")
    return f"{name}{values[ours]:.{digits}f} against {values[rival]:.{digits}f}{unit}"
