"""`tilebench report CAMPAIGN…`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilebench_core.campaign import find_campaign
from tilebench_core.errors import RequestError, nearest
from tilebench_core.report.write import FIGURE_FORMATS, FORMATS, write_report

__all__ = ["report_command"]

_DRAWN = ("pdf", "svg", "png")


def report_command(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Write the report beside the (first) campaign, or to `--out`, and print the tables."""
    parser.add_argument("campaign", nargs="+", help="campaigns, by name or folder; one report over all of them")
    parser.add_argument("--out", type=Path, help="the folder to write to (CAMPAIGN/report)")
    parser.add_argument("--formats", default=",".join(FORMATS), help=f"some of {','.join(FORMATS)}")
    parser.add_argument(
        "--figure-formats", default=",".join(FIGURE_FORMATS), help="of the static figures: some of pdf,svg,png (svg)"
    )
    parser.add_argument("--sync", action="store_true", help="then send tables and figures to the campaign's MLflow run")
    parser.add_argument("--results-dir", default="results")
    wanted = parser.parse_args(arguments)
    folders = [find_campaign(name, wanted.results_dir).folder for name in wanted.campaign]
    formats = [name.strip() for name in wanted.formats.split(",") if name.strip()]
    for name in formats:
        if name not in FORMATS:
            raise RequestError(f"--formats: {name!r}; expected some of {', '.join(FORMATS)}.{nearest(name, FORMATS)}")
    drawn = [name.strip() for name in wanted.figure_formats.split(",") if name.strip()]
    for name in drawn:
        if name not in _DRAWN:
            raise RequestError(
                f"--figure-formats: {name!r}; expected some of {', '.join(_DRAWN)}.{nearest(name, _DRAWN)}"
            )
    if wanted.sync and wanted.out:
        raise RequestError("--sync sends CAMPAIGN/report, so that MLflow shows what is on disk; leave out --out")
    written = write_report(folders, wanted.out or folders[0] / "report", formats, drawn)
    for path in written[:12]:
        print(path)
    if len(written) > 12:
        print(f"… and {len(written) - 12} more in {written[-1].parent}")
    return _sync(folders[0]) if wanted.sync else 0


def _sync(folder: Path) -> int:
    """Send the campaign, its report included, to every store that holds it, else to the one beside it."""
    from tilebench_core.tracking import known_stores, sync_campaign

    results = [sync_campaign(folder, options) for options in known_stores(folder)]
    for result in results:
        print(f"MLflow: {result.message}")
    return 0 if all(result.complete for result in results) else 1
