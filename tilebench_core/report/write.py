"""One call that writes every format."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilebench_core.report.content import Content, content_of

__all__ = ["FIGURE_FORMATS", "FORMATS", "write_report"]

FORMATS = ("terminal", "md", "csv", "parquet", "html", "figures")
FIGURE_FORMATS = ("svg",)  # PDF and PNG on demand: each costs as much as all the rest of the report


def write_report(
    campaigns: Sequence[Path],
    out: Path,
    formats: Sequence[str] = FORMATS,
    figure_formats: Sequence[str] = FIGURE_FORMATS,
) -> list[Path]:
    """Write the report over `campaigns` to the folder `out` and return the paths.

    "terminal" prints tables; the others write report.md, records.csv, records.parquet, report.html and figures/ (each
    figure in every one of `figure_formats`, with its values as CSV). Raises RequestError if a folder holds no records.
    """
    with _no_collections():
        content = content_of(campaigns)
        out.mkdir(parents=True, exist_ok=True)
        if "figures" not in formats:
            return _write_rest(content, out, formats)
        from tilebench_core.report.paper import figures_beside

        with figures_beside(content, out / "figures", figure_formats) as figures:
            written = _write_rest(content, out, formats)
            return written + figures()


@contextmanager
def _no_collections() -> Iterator[None]:
    """Hundreds of thousands of values are made and all kept: looking for cycles among them takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _write_rest(content: Content, out: Path, formats: Sequence[str]) -> list[Path]:
    written = []
    if "terminal" in formats:
        from rich.console import Console

        from tilebench_core.report.terminal import print_report

        console = Console()
        print_report(content, console if console.is_terminal else Console(width=160))  # a pipe has no width
    if "md" in formats:
        from tilebench_core.report.markdown import markdown_report

        written.append(out / "report.md")
        written[-1].write_text(markdown_report(content), encoding="utf-8")
    if "html" in formats:
        from tilebench_core.report.page import html_report

        written.append(out / "report.html")
        written[-1].write_text(html_report(content), encoding="utf-8")
    if "csv" in formats or "parquet" in formats:
        from tilebench_core.report.frames import records_columns, write_csv, write_parquet

        columns = records_columns(content.view, content.records)
        if "csv" in formats:
            written.append(write_csv(columns, out / "records.csv"))
        if "parquet" in formats:
            written.append(write_parquet(columns, out / "records.parquet"))
    return written
