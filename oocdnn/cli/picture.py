"""The demo's photograph, its bank of edge filters, and the picture made of their answers."""

from pathlib import Path

import click
import numpy as np
from PIL import Image

from oocdnn._arrays.mapped import Array

DIRECTIONS = 16  # around the full circle: an edge from dark to light is not one from light to dark
TAPS = 7
_FORMS = ("edge", "line")
_WIDTHS = (0.9, 1.5)  # of the filters' envelopes, in pixels
FILTERS = DIRECTIONS * len(_FORMS) * len(_WIDTHS)
_LUMINANCE = (0.299, 0.587, 0.114)
_THRESHOLD = 0.015  # answers below this are grain

# Rows of the answer that are looked at in one piece.
_ROWS = 64


def photograph(file: Path | None) -> tuple[Image.Image, str]:
    """The user's image, or one of matplotlib's sample photographs, and what to call it."""
    if file is not None:
        try:
            return Image.open(file).convert("RGB"), str(file)
        except OSError as error:
            raise click.ClickException(f"{file} cannot be read as an image: {error}") from error
    try:
        from matplotlib import cbook
    except ImportError as error:
        raise click.ClickException(
            "the demo's photograph comes with matplotlib: pip install 'oocdnn[demo]'"
        ) from error
    name = "grace_hopper.jpg"
    file = Path(str(cbook.get_sample_data(name, asfileobj=False)))
    return Image.open(file).convert("RGB"), f"matplotlib's {name}"


def resized(image: Image.Image, pixels: int) -> Image.Image:
    """The image with about as many pixels, in its proportions."""
    factor = (pixels / (image.width * image.height)) ** 0.5
    size = (max(TAPS, round(image.width * factor)), max(TAPS, round(image.height * factor)))
    return image.resize(size, Image.Resampling.LANCZOS)


def tensor(image: Image.Image) -> Array:
    """[1, 3, H, W] float32, from 0 to 1."""
    values = np.asarray(image, np.float32) / np.float32(255)
    return np.ascontiguousarray(np.moveaxis(values, -1, 0)[None])


def filter_bank() -> tuple[Array, Array]:
    """w [64, 3, 7, 7] and b [64], float32: edges and lines, two widths, 16 directions."""
    reach = TAPS // 2
    down, right = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    kernels = []
    for form in _FORMS:
        for width in _WIDTHS:
            for angle in angles():
                along = right * np.cos(angle) + down * np.sin(angle)
                across = -right * np.sin(angle) + down * np.cos(angle)
                # Lines look alike from both sides, so one half of the circle has the dark ones.
                sign = 1 if angle < np.pi else -1
                wave = along if form == "edge" else sign * np.cos(1.8 * along / width)
                kernel = wave * np.exp(-(along**2 + 0.25 * across**2) / (2 * width**2))
                kernel -= kernel.mean()
                kernels.append(kernel / np.abs(kernel).sum())
    w = np.asarray(kernels)[:, None] * np.asarray(_LUMINANCE)[None, :, None, None]
    return w.astype(np.float32), np.full(FILTERS, -_THRESHOLD, np.float32)


def angles() -> Array:
    """The filters' directions in radians."""
    return np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)


def composite(y: Array, largest_side: int) -> Image.Image:
    """The answers [1, 64, H, W] as a picture: direction is the hue, strength the brightness."""
    y = y[:, :, TAPS:-TAPS, TAPS:-TAPS]  # the photograph's own border is an edge too
    _, _, height, width = y.shape
    step = -(-max(height, width) // largest_side)
    turn = np.tile(np.exp(1j * angles()), FILTERS // DIRECTIONS).astype(np.complex64)
    basis = np.stack([turn.real, turn.imag])
    pull = np.empty((2, height // step, width // step), np.float32)
    rows = max(_ROWS // step, 1) * step
    for top in range(0, height // step * step, rows):
        part = y[0, :, top : min(top + rows, height // step * step), : width // step * step]
        sums = np.tensordot(basis, part, 1)
        blocks = sums.reshape(2, part.shape[1] // step, step, -1, step)
        pull[:, top // step : (top + part.shape[1]) // step] = blocks.mean((2, 4))
    strength = np.hypot(pull[0], pull[1])
    top_strength = max(float(np.quantile(strength, 0.995)), 1e-12)
    brightness = np.clip(strength / top_strength, 0, 1) ** 0.6
    hue = (np.arctan2(pull[1], pull[0]) / (2 * np.pi)) % 1.0
    channels = (hue, np.full_like(hue, 0.78), brightness)
    planes = [Image.fromarray((channel * 255).astype(np.uint8)) for channel in channels]
    return Image.merge("HSV", planes).convert("RGB")
