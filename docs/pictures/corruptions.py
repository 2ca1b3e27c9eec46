"""Draw docs/pictures/corruptions.png: every corruption at every severity on CIFAR-10 test images.

Usage: EMCMC_DATA=FOLDER python docs/pictures/corruptions.py
"""

from pathlib import Path

from matplotlib.figure import Figure

from entropy_mcmc.data import corrupt, corruption_names, load

IMAGES = (1, 3, 5, 7, 13)  # a ship, a plane, a frog, a car, a horse


def main() -> None:
    """One row per corruption: the clean image, then severities 1 to 5."""
    images = load("cifar10", split="test", limit=max(IMAGES) + 1).inputs
    names = corruption_names()
    figure = Figure(figsize=(7.8, 1.1 * len(names)))
    axes = figure.subplots(len(names), 6)
    for row, name in enumerate(names):
        index = IMAGES[row % len(IMAGES)]
        clean = images[index : index + 1]
        for severity in range(6):
            picture = corrupt(clean, name, severity, indices=[index]) if severity else clean
            panel = axes[row, severity]
            panel.imshow(picture[0].permute(1, 2, 0).numpy(), interpolation="nearest")
            panel.set_xticks([])
            panel.set_yticks([])
            if row == 0:
                panel.set_title(f"severity {severity}" if severity else "clean", fontsize=9)
        label = name.replace("_", "\n")
        axes[row, 0].set_ylabel(label, fontsize=8, rotation=0, ha="right", va="center")
    figure.tight_layout(pad=0.3)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=80)


if __name__ == "__main__":
    main()
