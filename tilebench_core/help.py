"""The help of `tilebench run`: the keys, straight from the configuration files."""

from __future__ import annotations

__all__ = ["run_help"]


def run_help() -> str:
    """The text of `tilebench run --help`."""
    from tilebench_core.compose import conf_dir
    from tilebench_core.registry import installed

    registry = installed()
    folder = conf_dir()
    groups = {
        path.name: sorted(choice.stem for choice in path.glob("*.yaml"))
        for path in sorted(folder.iterdir())
        if path.is_dir() and not path.name.startswith("_") and path.name != "llm"
    }
    lines = [
        "usage: tilebench run [-m] [--dry-run] [key=value ...]",
        "",
        "Selections (one or many: operator=softmax, operator=[softmax,relu]):",
        f"  operator   {len(registry.operators)} installed, see `tilebench list`",
        f"  backend    {', '.join(registry.backends)}",
        "  dtype      e.g. fp16, [fp16,fp32]; all without it",
        "  cases      grid, edge, smoke, largest, first, or indices: cases=0,1,3",
        "  mode       default, tuned or [default,tuned]",
        "",
        "Groups:",
        *(f"  {name:10} {', '.join(choices)}" for name, choices in groups.items()),
        "",
        "Keys, with their defaults:",
        *(f"  {line}" for line in (folder / "config.yaml").read_text(encoding="utf-8").splitlines()[16:]),
        "",
        "timing.KEY, tune.KEY, limits.KEY, backends.NAME.OPTION and operators.NAME.case_grid.PARAMETER=[...] work alike.",
        "-m runs every combination of comma-separated values into one campaign; --dry-run only plans.",
    ]
    return "\n".join(lines)
