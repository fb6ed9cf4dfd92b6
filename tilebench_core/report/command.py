"""`tilebench report CAMPAIGN…`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilebench_core.campaign import find_campaign
from tilebench_core.errors import RequestError, nearest
from tilebench_core.report.write import FORMATS, write_report

__all__ = ["report_command"]


def report_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Write the report beside the (first) campaign, or to `--out`, and print the tables."""
    parser.add_argument("campaign", nargs="+", help="campaigns, by name or folder; one report over all of them")
    parser.add_argument("--out", type=Path, help="the folder to write to (CAMPAIGN/report)")
    parser.add_argument("--formats", default=",".join(FORMATS), help=f"some of {','.join(FORMATS)}")
    parser.add_argument("--results-dir", default="results")
    wanted = parser.parse_args(arguments)
    folders = [find_campaign(name, wanted.results_dir).folder for name in wanted.campaign]
    formats = [name.strip() for name in wanted.formats.split(",") if name.strip()]
    for name in formats:
        if name not in FORMATS:
            raise RequestError(f"--formats: {name!r}; expected some of {', '.join(FORMATS)}.{nearest(name, FORMATS)}")
    written = write_report(folders, wanted.out or folders[0] / "report", formats)
    for path in written[:12]:
        print(path)
    if len(written) > 12:
        print(f"… and {len(written) - 12} more in {written[-1].parent}")
    return 0
