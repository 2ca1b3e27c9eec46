"""The published CIFAR-10-C severity constants (Hendrycks and Dietterich, ICLR 2019).

From `make_cifar_c.py` of hendrycks/robustness: five entries each, severity 1 to 5. Lengths are in
pixels of a 32 × 32 image and are used unchanged for other sizes.
"""

from __future__ import annotations

# Standard deviation on the scale 0 … 1.
GAUSSIAN_NOISE = (0.04, 0.06, 0.08, 0.09, 0.10)
# Photons at full intensity.
SHOT_NOISE = (500, 250, 100, 75, 50)
# Fraction of values replaced.
IMPULSE_NOISE = (0.01, 0.02, 0.03, 0.05, 0.07)
# Standard deviation relative to the value.
SPECKLE_NOISE = (0.06, 0.10, 0.12, 0.16, 0.20)
# Sigma.
GAUSSIAN_BLUR = (0.4, 0.6, 0.7, 0.8, 1.0)
# Sigma, largest shift, rounds.
GLASS_BLUR = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))
# Radius of the disk, sigma of its softening.
DEFOCUS_BLUR = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))
# Radius, sigma.
MOTION_BLUR = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))
# Number of zooms 1.00, 1.01, … that are averaged.
ZOOM_BLUR = (6, 11, 16, 21, 26)
# Strength, decay of the fractal.
FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))
# Weight of the image, weight of the frost.
FROST = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))
# Mean, deviation, zoom, threshold, blur radius, blur sigma, weight of the image.
SNOW = (
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)
# Mean, deviation, sigma, threshold, weight of water or sigma of mud, mud instead of water.
SPATTER = (
    (0.62, 0.1, 0.7, 0.7, 0.5, False),
    (0.65, 0.1, 0.8, 0.7, 0.5, False),
    (0.65, 0.3, 1.0, 0.69, 0.5, False),
    (0.65, 0.1, 0.7, 0.69, 0.6, True),
    (0.65, 0.1, 0.5, 0.68, 0.6, True),
)
# Factor of the distance from the mean.
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
# Added to the value of HSV.
BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)
# Factor of the saturation of HSV, and what is added.
SATURATE = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))
# Quality of the JPEG.
JPEG_COMPRESSION = (80, 65, 58, 50, 40)
# Fraction of the side.
PIXELATE = (0.95, 0.9, 0.85, 0.75, 0.65)
# Displacement, its smoothing, size of the affine jitter: all as fractions of the side.
ELASTIC_TRANSFORM = (
    (0.0, 0.0, 0.08),
    (0.05, 0.2, 0.07),
    (0.08, 0.06, 0.06),
    (0.1, 0.04, 0.05),
    (0.1, 0.03, 0.03),
)
