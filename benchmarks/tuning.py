"""What tuning costs and what it finds, on a GPU: `python benchmarks/tuning.py --out FOLDER [--backend triton]`.

Matrix multiplication, fp16, 4096 × 4096 × 4096, the whole space of each backend, from cold caches: by our shared search
and by the DSL's own tuner. What a search adds is the command's wall time beyond that of the same command in default mode,
from cold caches too: both load PyTorch, compile a configuration and measure it. Each search is run again by a second
process, which must find the winner without compiling or measuring a candidate. The shared search is repeated, with an
empty store of winners, to see whether it finds the same winner. Then default and winners are measured in turns within one
process. All of this is a round: commands of seconds on a machine that others use differ by seconds, so rounds are repeated, and
the folder's former rounds count too. Writes tuning-<backend>.json for each backend, and tuning.md over all backends whose files
are in the folder; exits with 1 where a second process searched or compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

OPERATOR, FOLDER, DTYPE, CASE = "matmul_fp32_fp16_fp8", "matmul_fp32_fp16_fp8", "fp16", 3  # K = 4096
BACKENDS = ("triton", "cutile", "tilelang")
CACHES = {
    "TILEBENCH_CACHE": "winners", "TRITON_CACHE_DIR": "triton", "CUDA_TILE_CACHE_DIR": "cutile",
    "TILELANG_CACHE_DIR": "tilelang", "CUDA_CACHE_PATH": "driver",
}  # fmt: skip
COMMAND_LIMIT_S = 500


def run(backend: str, tune: str, caches: Path, out: Path, campaign: str) -> dict[str, Any]:
    """Run one trial as a user would, in default mode if `tune` is off.

    Returns its wall seconds, record, tuning log and number of new compiled files.
    """
    command = [
        sys.executable, "-m", "tilebench_core.cli", "run", f"operator=[{OPERATOR}]", f"dtype=[{DTYPE}]",
        f"backend=[{backend}]", f"cases={CASE}", f"mode=[{'default' if tune == 'off' else 'tuned'}]", f"tune={tune}",
        "tracking=none", "figures=false", "noise_floor=false", f"campaign={campaign}", f"results_dir={out}", "rerun=all",
    ]  # fmt: skip
    env = {**os.environ, **{name: str(caches / folder) for name, folder in CACHES.items()}}
    before = compiled_files(caches)
    log = out / campaign / "tuning.jsonl"
    known = len(log.read_text().splitlines()) if log.is_file() else 0
    begun = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
    wall_s = time.perf_counter() - begun
    lines = (out / campaign / "records.jsonl").read_text().splitlines() if done.returncode < 2 else []
    if not lines:
        raise SystemExit(f"{campaign}: {done.stdout[-700:]} {done.stderr[-700:]}")
    events = [json.loads(line) for line in log.read_text().splitlines()[known:]] if log.is_file() else []
    return {
        "wall_s": wall_s, "record": json.loads(lines[-1]), "events": events,
        "new_files": compiled_files(caches) - before,
    }  # fmt: skip


def compiled_files(caches: Path) -> int:
    """How many files the compilers' caches hold, without the store of winners and what a database keeps while it is open."""
    passing = ("-wal", "-shm", "-journal", ".lock")
    files = (path for path in caches.rglob("*") if path.is_file() and not path.name.endswith(passing))
    return sum("winners" not in path.relative_to(caches).parts for path in files)


def told(ran: Mapping[str, Any]) -> dict[str, Any]:
    """One run as it is written: what was chosen, what it cost, and whether anything was searched."""
    record = ran["record"]
    winner = next((event for event in ran["events"] if event["event"] == "winner"), {})
    kept = ("candidates", "failed", "reason", "median_us", "default_us", "seconds", "compile_s", "measure_s")
    return {
        "wall_s": round(ran["wall_s"], 2), "outcome": record["outcome"], "reason": record["reason"],
        "config": record["config"], "config_source": record["config_source"], "final_median_us": record["median_us"],
        "searched": any(event["event"] in ("search", "started") for event in ran["events"]),
        "new_compiled_files": ran["new_files"], "search": {name: winner.get(name) for name in kept},
    }  # fmt: skip


def in_turns(backend_name: str, configs: Sequence[Mapping[str, Any]]) -> list[float]:
    """Median microseconds of each configuration, measured in turns in this process: cold cache, graphs, 100 samples."""
    from tilebench_core.devices import find_device
    from tilebench_core.registry import installed
    from tilebench_core.timing import Entry, TimingSettings, clock_named, time_entries
    from tilebench_core.timing.gpu import CacheFlush, capture

    registry = installed()
    backend = registry.backend(backend_name).value()
    os.environ.update(backend.environment(find_device("auto")))  # before the DSL is imported
    import torch

    from tilebench_core.definition import Draw

    clock = clock_named("cupti", {})
    clock.open()
    operator = registry.operators[FOLDER]
    kernel = registry.kernel(operator, backend_name).load()
    inputs = operator.load().inputs(operator.config.cases(DTYPE)[CASE], Draw("cuda", 0))
    flush = CacheFlush(torch.cuda.get_device_properties(0).L2_cache_size)
    settings = TimingSettings(protocol="fixed", warmup=20, repeat=100)
    with clock.case():
        entries = []
        for number, config in enumerate(configs):
            backend.compile(kernel, inputs, config)
            graph = capture(lambda config=config: backend.launch(kernel, inputs, config))
            entries.append(Entry(str(number), graph.replay, graph.replay))
        timings = time_entries(entries, settings, clock, flush)
    clock.close()
    return [statistics.median(sample.busy_us for sample in timing.samples) for timing in timings]


def default_config(backend: str) -> dict[str, Any]:
    """The hand-picked configuration of the case."""
    from tilebench_core.registry import installed

    registry = installed()
    operator = registry.operators[FOLDER]
    kernel = registry.kernel(operator, backend).load()
    return dict(kernel.default(operator.config.cases(DTYPE)[CASE]))


def measure(backend: str, out: Path, repeats: int) -> dict[str, Any]:
    """One round of one backend."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tilebench-cold-") as folder:
        read = Path(folder) / "read"  # a run that is not counted: it reads the libraries from disk for those that are
        read.mkdir()
        run(backend, "off", read, out, f"{backend}-read")
        for tune in ("off", "shared", "native"):
            caches = Path(folder) / tune
            caches.mkdir()
            result[tune] = told(run(backend, tune, caches, out, f"{backend}-{tune}"))
            if tune == "off" or result[tune]["config"] is None:
                continue  # nothing was searched, or it was refused: its reason is in the result
            result[f"{tune}_again"] = told(run(backend, tune, caches, out, f"{backend}-{tune}-again"))
        repeated = [result["shared"]]
        for number in range(2, repeats + 1):  # compiled code is there by now, winners are not
            (Path(folder) / "shared" / "winners" / "winners.jsonl").unlink(missing_ok=True)
            repeated.append(told(run(backend, "shared", Path(folder) / "shared", out, f"{backend}-shared-{number}")))
        result["repeats"] = [{"config": r["config"], **r["search"]} for r in repeated]
        chosen = [default_config(backend), *(r["config"] for r in repeated)]
        chosen += [result["native"]["config"]] if result["native"]["config"] else []
        configs = [json.loads(text) for text in dict.fromkeys(json.dumps(c, sort_keys=True) for c in chosen if c)]
        child = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--in-turns", json.dumps(configs), "--backend", backend],
            env={**os.environ, **{name: str(Path(folder) / "shared" / to) for name, to in CACHES.items()}},
            capture_output=True, text=True, timeout=COMMAND_LIMIT_S,
        )  # fmt: skip
        if child.returncode:
            raise SystemExit(f"{backend} in turns: {child.stdout[-700:]} {child.stderr[-1500:]}")
        medians = json.loads(child.stdout.splitlines()[-1])
    result["turns"] = [{"config": c, "median_us": m} for c, m in zip(configs, medians, strict=True)]
    return result


def where(campaign: Path) -> dict[str, Any]:
    """What the campaign ran on, from its last record."""
    record = json.loads((campaign / "records.jsonl").read_text().splitlines()[-1])
    return {"device": record["device"], "versions": record["versions"], "cores": os.cpu_count()}


def with_round(path: Path, backend: str, place: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a backend's file with one more round; a round of another machine goes into a file of its own instead."""
    known = json.loads(path.read_text()) if path.is_file() else {"backend": backend, **place, "rounds": []}
    other = [f"{name} {known[name]}" for name in place if known[name] != place[name]]
    if other:
        number = len(list(path.parent.glob(f"{path.stem}-*-other.json")))  # none of them is written over
        path = path.with_name(f"{path.stem}-{number}-other.json")
        path.write_text(json.dumps({"backend": backend, **place, "rounds": [new]}, indent=1))
        raise SystemExit(
            f"{backend}: this round's machine is not that of the rounds in the folder ({', '.join(other)}); it is in {path}."
            " Give another --out to begin anew"
        )
    return {**known, "rounds": [*known["rounds"], new]}


def median_of(one: Mapping[str, Any], config: Any) -> float:
    """The median of a configuration that was measured in turns in a round."""
    return float(next(row["median_us"] for row in one["turns"] if row["config"] == config))


def added_s(one: Mapping[str, Any], tune: str) -> float:
    """Wall seconds that a search adds to the same round's command without one."""
    return float(one[tune]["wall_s"] - one["off"]["wall_s"])


def spread(values: Sequence[float], digits: int) -> str:
    """The median, and from how much to how much where there are several."""
    middle, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def listed(texts: Iterable[str]) -> str:
    """Different texts, in order."""
    return ", ".join(dict.fromkeys(texts))


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The Markdown page."""
    lines = [
        f"Matrix multiplication, fp16, 4096 × 4096 × 4096, whole space, cold caches, on {results[0]['device']} and"
        f" {listed(str(result['cores']) for result in results)} cores. Wall seconds are of the whole command, from its start to its"
        " end; what the search adds is beyond the same round's first row, the same command without a search. Of several rounds"
        " the median is shown, and the lowest and highest. The second process finds the winner in the store. Medians are of one"
        " process in each round that measures default and winners in turns (cold L2, CUDA graphs, 100 samples).",
        "",
        "| backend | search | rounds | candidates | failed | wall s | search adds s | of native's | wall s, second process |"
        " winner µs | over default | winner |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        rounds = result["rounds"]
        plain_s = [one["off"]["wall_s"] for one in rounds]
        default_us = [one["turns"][0]["median_us"] for one in rounds]
        lines.append(
            f"| {result['backend']} | none | {len(rounds)} | | | {spread(plain_s, 1)} | | | |"
            f" {listed(f'{us:.2f}' for us in default_us)} | 1.00× | {shown(rounds[0]['turns'][0]['config'])} |"
        )
        for tune in ("shared", "native"):
            searched = [one for one in rounds if f"{tune}_again" in one]
            if not searched:
                wall_s, reason = spread([one[tune]["wall_s"] for one in rounds], 1), rounds[-1][tune]["reason"]
                lines.append(f"| {result['backend']} | {tune} | {len(rounds)} | | | {wall_s} | | | | | | {reason} |")
                continue
            # Without ratios where the native search was refused: there is nothing to compare with.
            ratios = [added_s(one, tune) / added_s(one, "native") for one in searched if "native_again" in one]
            medians = [median_of(one, one[tune]["config"]) for one in searched]
            over = [one["turns"][0]["median_us"] / median for one, median in zip(searched, medians, strict=True)]
            lines.append(
                f"| {result['backend']} | {tune} | {len(searched)}"
                f" | {listed(str(one[tune]['search']['candidates']) for one in searched)}"
                f" | {listed(str(one[tune]['search']['failed']) for one in searched)}"
                f" | {spread([one[tune]['wall_s'] for one in searched], 1)}"
                f" | {spread([added_s(one, tune) for one in searched], 1)} | {spread(ratios, 2) if ratios else ''}"
                f" | {spread([one[f'{tune}_again']['wall_s'] for one in searched], 1)}"
                f" | {listed(f'{us:.2f}' for us in medians)} | {listed(f'{ratio:.2f}×' for ratio in over)}"
                f" | {listed(shown(one[tune]['config']) for one in searched)} |"
            )
    lines += [
        "",
        "| backend | shared search, repeated | distinct winners | their medians in turns, µs |",
        "|---|---|---|---|",
    ]
    for result in results:
        found = [(one, repeat["config"]) for one in result["rounds"] for repeat in one["repeats"]]
        winners = {json.dumps(config, sort_keys=True) for _, config in found}
        medians = listed(f"{median_of(one, config):.2f}" for one, config in found)
        lines.append(f"| {result['backend']} | {len(found)} times | {len(winners)} | {medians} |")
    return "\n".join(lines) + "\n"


def shown(config: Mapping[str, Any]) -> str:
    """A configuration in a cell."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def main() -> int:
    """Measure, write, and check that no second process searched or compiled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/tuning"))
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="one of them; all without it")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured from cold caches")
    parser.add_argument("--repeats", type=int, default=5, help="how often the shared search is made in a round")
    parser.add_argument("--in-turns", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.in_turns:
        print(json.dumps(in_turns(wanted.backend[0], json.loads(wanted.in_turns))))
        return 0
    wanted.out.mkdir(parents=True, exist_ok=True)
    for backend in (wanted.backend or BACKENDS) * wanted.rounds:
        path = wanted.out / f"tuning-{backend}.json"
        new = measure(backend, wanted.out, wanted.repeats)
        path.write_text(json.dumps(with_round(path, backend, where(wanted.out / f"{backend}-shared"), new), indent=1))
    results = [
        json.loads(path.read_text()) for name in BACKENDS if (path := wanted.out / f"tuning-{name}.json").is_file()
    ]
    (wanted.out / "tuning.md").write_text(table(results))
    print(table(results))
    rounds = [one for result in results for one in result["rounds"]]
    idle = [again for one in rounds for tune in ("shared", "native") if (again := one.get(f"{tune}_again"))]
    return int(any(again["searched"] or again["new_compiled_files"] for again in idle))


if __name__ == "__main__":
    sys.exit(main())
