"""One call that writes every format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tilebench_core.report.content import content_of

__all__ = ["FORMATS", "write_report"]

FORMATS = ("terminal", "md", "csv", "parquet", "html", "figures")


def write_report(campaigns: Sequence[Path], out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write the report over `campaigns` to the folder `out` and return the paths.

    "terminal" prints tables; the others write report.md, records.csv, records.parquet, report.html and figures/.
    Raises RequestError if a folder holds no records.
    """
    content = content_of(campaigns)
    out.mkdir(parents=True, exist_ok=True)
    written = []
    if "terminal" in formats:
        from rich.console import Console

        from tilebench_core.report.terminal import print_report

        print_report(content, Console())
    if "md" in formats:
        from tilebench_core.report.markdown import markdown_report

        written.append(out / "report.md")
        written[-1].write_text(markdown_report(content), encoding="utf-8")
    if "html" in formats:
        from tilebench_core.report.page import html_report

        written.append(out / "report.html")
        written[-1].write_text(html_report(content), encoding="utf-8")
    if "csv" in formats or "parquet" in formats:
        from tilebench_core.report.frames import records_frame, write_csv, write_parquet

        frame = records_frame(content.view, content.records)
        if "csv" in formats:
            written.append(write_csv(frame, out / "records.csv"))
        if "parquet" in formats:
            written.append(write_parquet(frame, out / "records.parquet"))
    if "figures" in formats:
        from tilebench_core.report.paper import paper_figures

        written += paper_figures(content, out / "figures")
    return written
