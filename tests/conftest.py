"""Options of the test suite."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

collect_ignore = ["example_dsl", "faulty"]  # their tests run where they are installed: in subprocesses of test_cli.py


def _has_gpu() -> bool:
    from tilebench_core.devices import visible_gpus
    from tilebench_core.errors import TilebenchError

    try:
        return bool(visible_gpus())
    except TilebenchError:
        return False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=100, help="how often test_resume.py kills a run")
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test is a failure, as on a GPU machine")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")
    config.addinivalue_line(
        "markers", "xdist_group(name): pytest-xdist's, named here so that the suite runs without it"
    )
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "loadfile"  # the runs that the tests of a file look at happen once


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked gpu are skipped where there is none.

    Under --dist loadgroup the tests of a file here stay together too; kernels of the packs are spread freely.
    """
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not _has_gpu():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU is visible"))
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.config.getoption("--fail-on-skip"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and --fail-on-skip was given: {report.longrepr}"
    return report
