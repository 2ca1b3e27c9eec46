"""From results to tables and figures; never runs a chain."""

from entropy_mcmc.report.theory_figure import draw_bounds, save_theory_figure

__all__ = ["draw_bounds", "save_theory_figure"]
