"""One run of the LLM track, from its composed configuration to trajectories that have ended: `tilebench llm run`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilebench_core.campaign import Campaign, open_campaign
from tilebench_core.case import Case
from tilebench_core.compose import conf_dir
from tilebench_core.device import Device
from tilebench_core.devices import find_device
from tilebench_core.environment import backend_versions, capture_environment
from tilebench_core.errors import RequestError, nearest
from tilebench_core.llm.archive import Archive
from tilebench_core.llm.baseline import pinned_baseline
from tilebench_core.llm.budget import NextRequest, check_priced, exceeded
from tilebench_core.llm.compliance import rules_for
from tilebench_core.llm.config import LlmConfig, llm_config
from tilebench_core.llm.evaluate import EvaluatorError, HarnessEvaluator
from tilebench_core.llm.fingerprint import changed_parts, digest_of, sources_digest
from tilebench_core.llm.prompts import Prompter
from tilebench_core.llm.provider import Provider, ProviderError, ProviderSettings
from tilebench_core.llm.recorded import RecordedTimes, load_recorded
from tilebench_core.llm.rounds import Trajectory, read_trajectory
from tilebench_core.llm.steps import Machine, Stopped
from tilebench_core.llm.usage import Price, load_prices, price_for
from tilebench_core.llm.walls.probe import choose_walls
from tilebench_core.llm.walls.spec import Walls
from tilebench_core.packs import Operator
from tilebench_core.plan import chosen_dtypes, planned_operators
from tilebench_core.plugins import LLM_PROVIDERS, discover, load_plugins
from tilebench_core.registry import Registry
from tilebench_core.roofline import Ceilings, ceilings_for

__all__ = ["Job", "Planned", "execute", "prepare", "prompter_for", "provider_named", "trajectories_of"]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One trajectory before it runs."""

    operator: Operator
    backends: tuple[str, ...]
    dtypes: tuple[str, ...]
    cases: tuple[Case, ...]
    key: Mapping[str, Any]

    @property
    def slug(self) -> str:
        """The name of its folder: readable, and different for every key."""
        parts = [
            self.key["operator"],
            "+".join(self.backends),
            "+".join(self.dtypes),
            self.key["model"],
            self.key["condition"],
        ]
        return re.sub(r"[^A-Za-z0-9_.+-]+", "_", "-".join(parts))[:120] + f"-{digest_of(self.key)[:8]}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run that is ready to start."""

    registry: Registry
    config: LlmConfig
    composed: Mapping[str, Any]
    device: Device
    campaign: Campaign
    planned: tuple[Planned, ...]
    provider: Provider
    price: Price | None
    ceilings: Ceilings | None
    recorded: RecordedTimes | None


@dataclass
class Outcome:
    """What a run achieved: the trajectories that ended, and why each other one did not."""

    done: list[Trajectory] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


def provider_named(name: str, settings: ProviderSettings) -> Provider:
    """Open the provider plugin `name`. Raises RequestError with its reason if it is broken or unknown."""
    good, broken = load_plugins(LLM_PROVIDERS, *discover(LLM_PROVIDERS))
    for plugin in good:
        if plugin.name == name:
            try:
                opened: Provider = plugin.value(settings)
            except TypeError as error:
                raise RequestError(f"model.options of provider {name!r}: {error}") from error
            return opened
    for failed in broken:
        if failed.name == name:
            raise RequestError(f"provider {name!r} of {failed.provider} is broken: {failed.reason}")
    known = sorted(plugin.name for plugin in good)
    raise RequestError(f"unknown provider {name!r}; installed: {', '.join(known)}.{nearest(name, known)}")


def _planned(registry: Registry, config: LlmConfig) -> list[Planned]:
    """A trajectory for each operator and, as the protocol says, all backends or each backend."""
    found = []
    for operator, _ in planned_operators(registry, config.harness_operators()):
        dtypes = chosen_dtypes(operator.config, config.dtypes)
        if not dtypes:
            raise RequestError(f"{operator.name} has none of the dtypes {', '.join(config.dtypes or ())}")
        if config.protocol.case == "grid":
            if config.dtypes is not None and len(dtypes) > 1:
                raise RequestError(
                    f"protocol={config.protocol.name} judges one dtype; choose one of {', '.join(dtypes)}"
                )
            dtypes = dtypes[:1]
        largest = config.protocol.case == "largest"
        cases = tuple(
            case
            for dtype in dtypes
            for case in ([operator.config.largest(dtype)] if largest else operator.config.cases(dtype))
        )
        backends = tuple(sorted(config.backends))
        for group in [backends] if config.protocol.unit == "joint" else [(backend,) for backend in backends]:
            key = {
                "operator": operator.name, "backends": list(group), "dtypes": list(dtypes), "model": config.model.name,
                "condition": config.condition_name,
            }  # fmt: skip
            found.append(Planned(operator=operator, backends=group, dtypes=tuple(dtypes), cases=cases, key=key))
    return found


def prepare(registry: Registry, composed: Mapping[str, Any], *, sending: bool = True) -> Job:
    """Check everything that can be checked before a request is paid for. Raises RequestError in one line."""
    config = llm_config(composed)
    device = find_device(config.device.name)
    for backend in config.backends:
        rules_for(backend)
        reason = registry.backend(backend).value().probe(device) if sending else None
        if reason is not None:
            raise RequestError(f"candidates in {backend} cannot run here: {reason}")
    model = config.model
    provider = provider_named(
        model.provider, ProviderSettings(base_url=model.base_url, api_key_env=model.api_key_env, options=model.options)
    )
    price = price_for(
        model.name,
        load_prices(Path(config.prices) if config.prices else conf_dir() / "llm" / "prices.yaml"),
        model.price,
    )
    if sending:
        reason = provider.probe()
        if reason is not None:
            raise RequestError(f"model {model.name!r}: {reason}")
        check_priced(config.budget, price, model.name)
        check_priced(config.campaign_budget, price, model.name)
    return Job(
        registry=registry, config=config, composed=composed, device=device,
        campaign=open_campaign(config.results_dir, config.campaign) if sending else Campaign(Path(config.results_dir)),
        planned=tuple(_planned(registry, config)), provider=provider, price=price,
        ceilings=ceilings_for(device.name, conf_dir() / "device") if device.is_gpu else None,
        recorded=load_recorded(config.times_from) if config.times_from else None,
    )  # fmt: skip


def prompter_for(job: Job, planned: Planned) -> Prompter:
    """The prompts of one trajectory."""
    device = job.recorded.device if job.recorded is not None and not job.device.is_gpu else job.device.name
    return Prompter(
        registry=job.registry, operator=planned.operator, backends=planned.backends, dtypes=planned.dtypes, cases=planned.cases,
        protocol=job.config.protocol, parts=job.config.prompt, device=device,
    )  # fmt: skip


def trajectories_of(campaign: Path) -> list[tuple[Path, Trajectory]]:
    """Every trajectory of a campaign, its archive checked."""
    found = []
    for header in sorted(campaign.glob("llm/*/trajectory.json")):
        found.append((header.parent, read_trajectory(Archive.open(header.parent))))
    return found


def _fingerprint(job: Job, planned: Planned, prompter: Prompter, baseline: str | None) -> dict[str, str]:
    config = job.config
    model = {
        "provider": config.model.provider,
        "name": config.model.name,
        **config.model.sampling,
        "options": dict(config.model.options),
    }
    versions = backend_versions([job.registry.backend(name) for name in (*planned.backends, config.baseline)])
    recorded = (
        None if job.recorded is None else digest_of([[key, asdict(times)] for key, times in job.recorded.table.items()])
    )
    return {
        **sources_digest(),
        "prompts": prompter.fingerprint(),
        "protocol": digest_of(asdict(config.protocol)),
        "model": digest_of({**model, **job.provider.identity()}),
        "operator": digest_of([planned.operator.path.read_text(encoding="utf-8"), planned.operator.config.raw]),
        "baseline": str(baseline),
        "recorded times": str(recorded),
        "timing and device": digest_of([asdict(config.timing), config.seed, job.device.name, asdict(config.limits)]),
        "versions": digest_of(versions),
    }


def _open(job: Job, planned: Planned, prompter: Prompter, baseline: str | None) -> Archive:
    """The trajectory's archive, begun or continued under the same fingerprint."""
    archive = Archive.open(job.campaign.folder / "llm" / planned.slug)
    fingerprint = _fingerprint(job, planned, prompter, baseline)
    if archive.find("trajectory") is None:
        header = {
            "key": dict(planned.key), "fingerprint": fingerprint, "protocol": asdict(job.config.protocol), "device": job.device.name,
            "times_device": job.recorded.device if job.recorded else None, "provider": job.provider.name,
            "model": {"name": job.config.model.name, **job.config.model.sampling}, "price": asdict(job.price) if job.price else None,
            "category": planned.operator.config.category,
        }  # fmt: skip
        archive.keep("trajectory", None, {"trajectory.json": header})
    changed_parts(archive.load("trajectory.json")["fingerprint"], fingerprint, planned.slug)
    return archive


def execute(job: Job, say: Callable[[str], None], stopped: Callable[[], bool]) -> Outcome:
    """Run every trajectory of the job to its end, as far as budgets, the API and the user allow. All is on disk."""
    config = job.config
    backends = [job.registry.backend(name) for name in config.backends]
    packages = [plugin.value.__module__.partition(".")[0] for plugin in backends]
    packages += [p.operator.module.partition(".")[0] for p in job.planned]
    walls = choose_walls(Walls.around(config.isolation.mode, config.isolation, packages, job.device))
    say(
        "candidates run WITHOUT WALLS, with your rights"
        if walls.mode == "none"
        else f"candidates run behind {walls.mode}, probed"
    )
    environment = capture_environment(job.device, backends)
    job.campaign.describe({**environment, "walls": walls.mode, "llm": True}, job.composed)
    outcome = Outcome()
    for planned in job.planned:
        if stopped():
            outcome.stopped = True
            break
        say(f"{planned.slug}")
        try:
            outcome.done.append(_run_one(job, planned, walls, say, stopped))
        except Stopped:
            outcome.stopped = True
            break
        except (ProviderError, EvaluatorError) as error:
            outcome.left[planned.slug] = str(error)
            say(f"  stands still: {error}")
    return outcome


def _run_one(
    job: Job, planned: Planned, walls: Walls, say: Callable[[str], None], stopped: Callable[[], bool]
) -> Trajectory:
    config, folder = job.config, job.campaign.folder
    baseline, pin = pinned_baseline(
        job.registry, config, planned.operator, planned.cases, job.device, job.ceilings, folder / "llm-baselines", say
    )
    prompter = prompter_for(job, planned)
    archive = _open(job, planned, prompter, pin)

    def budgets(trajectory: Trajectory, worst: NextRequest) -> str | None:
        others = (
            [other for place, other in trajectories_of(folder) if place != archive.folder] if _limited(config) else []
        )
        return exceeded(config.budget, [trajectory], worst, "budget") or exceeded(
            config.campaign_budget, [*others, trajectory], worst, "campaign_budget"
        )

    evaluator = HarnessEvaluator(
        registry=job.registry, config=config, operator=planned.operator, cases=planned.cases, device=job.device, ceilings=job.ceilings,
        walls=walls, baseline_us=baseline, recorded=job.recorded, say=say,
    )  # fmt: skip
    machine = Machine(
        archive=archive, key=planned.key, prompter=prompter, provider=job.provider, model=config.model, price=job.price,
        evaluator=evaluator, budgets=budgets, stopped=stopped, progress=lambda line: say(f"  {line}"),
    )  # fmt: skip
    trajectory = machine.run()
    say(f"  ended: {trajectory.end.value if trajectory.end else ''}, {trajectory.end_reason}")
    return trajectory


def _limited(config: LlmConfig) -> bool:
    return any(value is not None for value in asdict(config.campaign_budget).values())
