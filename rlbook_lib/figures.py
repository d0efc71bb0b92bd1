"""Drawings that more than one page uses, and the figures' style."""

from __future__ import annotations

from matplotlib.figure import Figure

from rlbook_lib.explore import StaticFigure, static_figure


def show(figure: Figure, alt: str) -> StaticFigure:
    """A static figure as themed SVG; make it the last line of a cell.

    Args:
        figure: A matplotlib figure; it is closed.
        alt: What the picture shows, in words.

    Returns:
        An object that a notebook displays.

    Raises:
        TypeError: ``figure`` is no matplotlib figure.
        ValueError: ``alt`` is empty.
    """
    return static_figure(figure, alt)
