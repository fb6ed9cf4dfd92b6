"""`tilebench list`: what is installed, as a table or as JSON. Nothing heavy is imported."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tilebench_core.device import Device
from tilebench_core.registry import Registry

__all__ = ["backend_status", "listing", "print_listing"]


def backend_status(registry: Registry, device: Device) -> list[dict[str, Any]]:
    """Each backend with its provider, versions, whether it can run on `device`, and if not, why."""
    rows = []
    for name, plugin in registry.backends.items():
        backend = plugin.value()
        reason = backend.probe(device)
        status = "unavailable" if reason else "interpreted" if backend.interpreted(device) else "available"
        versions = " ".join(f"{package} {version}" for package, version in backend.versions().items())
        rows.append(
            {"name": name, "provider": str(plugin.provider), "version": versions, "status": status, "reason": reason}
        )
    without_plugin = {kernel.backend for kernel in registry.kernels} - set(registry.backends)
    for name in sorted(without_plugin):
        reason = f"kernels for it are installed, the backend is not: pip install tilebench-{name}"
        rows.append({"name": name, "provider": None, "version": None, "status": "not installed", "reason": reason})
    return rows


def listing(registry: Registry, device: Device) -> dict[str, Any]:
    """The document that `tilebench list --json` prints."""
    operators = []
    for operator in registry.operators.values():
        config = operator.config
        kernels: dict[str, str] = {}
        for kernel in registry.kernels:
            if kernel.folder == operator.folder:
                known = kernels.get(kernel.backend)
                kernels[kernel.backend] = f"{known}, {kernel.provider}" if known else str(kernel.provider)
        operators.append(
            {
                "name": operator.name,
                "category": config.category,
                "origin": config.origin,
                "provider": str(operator.provider),
                "dtypes": list(config.dtypes),
                "cases": sum(len(config.cases(dtype)) for dtype in config.dtypes),
                "backends": dict(sorted(kernels.items())),
            }
        )
    broken = [
        {"distribution": str(plugin.provider), "entry_point": plugin.name, "reason": plugin.reason}
        for plugin in registry.broken
    ]
    return {
        "backends": backend_status(registry, device),
        "operators": operators,
        "broken": broken,
        "device": asdict(device),
    }


def print_listing(document: dict[str, Any]) -> None:
    """Print the listing as tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    backends = Table(header_style="bold", pad_edge=False)
    for column in ("backend", "status", "version", "from", "reason"):
        backends.add_column(column, overflow="fold")
    colours = {"available": "green", "interpreted": "cyan"}
    for row in document["backends"]:
        colour = colours.get(row["status"], "yellow")
        backends.add_row(
            row["name"],
            f"[{colour}]{row['status']}[/]",
            row["version"] or "",
            row["provider"] or "",
            row["reason"] or "",
        )
    console.print(backends)
    names = [
        row["name"] for row in document["backends"] if any(row["name"] in o["backends"] for o in document["operators"])
    ]
    operators = Table(header_style="bold", pad_edge=False)
    for column in ("operator", "category", "from", "dtypes", "cases"):
        operators.add_column(column, justify="right" if column == "cases" else "left")
    for name in names:
        operators.add_column(name, justify="center")
    category = ""
    for row in sorted(document["operators"], key=lambda row: (row["category"], row["name"])):
        if category and category != row["category"]:
            operators.add_section()
        category = row["category"]
        marks = [_mark(row["backends"].get(name)) for name in names]
        operators.add_row(row["name"], category, row["origin"], " ".join(row["dtypes"]), str(row["cases"]), *marks)
    console.print(operators)
    cases = sum(row["cases"] for row in document["operators"])
    console.print(f"{len(document['operators'])} operators, {cases} timed cases")
    for row in document["broken"]:
        console.print(f"[red]broken[/] {row['distribution']} ({row['entry_point']}): {row['reason']}", soft_wrap=True)


def _mark(providers: str | None) -> str:
    if providers is None:
        return "·"
    return "✓" if "," not in providers else f"✓{providers.count(',') + 1}"
