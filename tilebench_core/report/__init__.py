"""Reports over campaigns: terminal, Markdown, CSV, Parquet, one HTML page, and figures for papers."""

from tilebench_core.report.write import FORMATS, write_report

__all__ = ["FORMATS", "write_report"]
