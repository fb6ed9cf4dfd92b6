"""Figures of one operator in one dtype: latency, bandwidth, speedup, share of the peak, TFLOP/s and roofline."""

from tilebench_core.figures.draw import draw_figures, save_figures
from tilebench_core.figures.lines import FIGURES, Figure, Line, figures_of
from tilebench_core.figures.palette import Look, looks

__all__ = ["FIGURES", "Figure", "Line", "Look", "draw_figures", "figures_of", "looks", "save_figures"]
