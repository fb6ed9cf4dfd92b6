"""One call that writes every format."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilebench_core.errors import TilebenchError
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
    tables = _tables_beside(content, out, formats)
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
        written[-1].write_text(html_report(content, out), encoding="utf-8")
    return written + tables()


def _tables_beside(content: Content, out: Path, formats: Sequence[str]) -> Callable[[], list[Path]]:
    """Write CSV and Parquet in a process of its own; what is returned waits for it and gives the paths."""
    paths = [out / f"records.{name}" for name in ("csv", "parquet") if name in formats]
    if not paths:
        return list
    if "fork" not in multiprocessing.get_all_start_methods():
        _write_tables(content, out, formats)
        return lambda: paths
    # A forked child sees the content as it is; nothing is copied between the processes.
    child = multiprocessing.get_context("fork").Process(target=_write_tables, args=(content, out, formats))
    child.start()

    def finished() -> list[Path]:
        child.join()
        if child.exitcode != 0:
            raise TilebenchError(f"writing {', '.join(map(str, paths))} failed; its error stands above")
        return paths

    return finished


def _write_tables(content: Content, out: Path, formats: Sequence[str]) -> None:
    from tilebench_core.report.frames import records_columns, write_csv, write_parquet

    columns = records_columns(content.view, content.records)
    if "csv" in formats:
        write_csv(columns, out / "records.csv")
    if "parquet" in formats:
        write_parquet(columns, out / "records.parquet")
