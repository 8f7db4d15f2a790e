"""Turn what TensorZero logged into a store of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from trajkit._core.output.console import Meter, count, plural, talk
from trajkit._core.process.memory import leave_pandas
from trajkit._core.settings import project
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import (
    Count,
    File,
    Many,
    Moment,
    Option,
    Output,
    ServerMemory,
    many,
    moment_of,
)
from trajkit.commands.place import goal_of, store_path
from trajkit.commands.play.server import access, refuse_server_options
from trajkit.commands.result import Made, store_line
from trajkit.commands.sharding import refuse_secrets, shards_for
from trajkit.errors import RequestError
from trajkit.store.tally import tally_text

if TYPE_CHECKING:
    from trajkit.engines.engine import Engine
    from trajkit.schema import Manifest
    from trajkit.sources.access import Access
    from trajkit.sources.open import Location
    from trajkit.sources.request import ExportRequest, MetricCondition, Tally


@dataclass(frozen=True, repr=False)
class Exported(Made):
    """The result of an export."""

    after: str | None = None
    """Name of the store that the export continues; None without one."""

    @property
    def tally(self) -> Tally:
        """What was seen, kept, and left out by reason."""
        tally: Tally = self.report
        return tally

    def to_json(self) -> dict[str, Any]:
        """The store, its digest and the tally."""
        return {
            "store": None if self.path is None else str(self.path),
            "digest": None if self.manifest is None else self.manifest.digest,
            **self.tally.model_dump(mode="json"),
        }

    def __str__(self) -> str:
        since, more = self.tally.since, list[tuple[str, str, str]]()
        if since is not None and self.after is not None:
            more = [
                (f"  of them new since {self.after}", count(since.n_episodes_new), ""),
                ("  of them scored again or continued", count(since.n_episodes_again), ""),
            ]
        last = () if self.path is None or self.manifest is None else (store_line(self.path, self.manifest),)
        return "\n".join((tally_text(self.entry, *more), *last))


def _bound(text: str, *, option: str) -> float:
    from trajkit.sources.request import parse_bound

    return parse_bound(text, option=option)


@flattened()
def export(
    *,
    source: Annotated[str | Path | None, Option(metavar="URL|ARCHIVE|STORE", takes_address=True)] = None,
    function: Many = (),
    train_function: Annotated[Many, Option(metavar="FUNCTION")] = (),
    variant: Many = (),
    metric: Annotated[Many | Mapping[str, tuple[float | None, float | None]], Option(metavar="NAME")] = (),
    min: Annotated[
        float | None, Option(of="metric", metavar="NUMBER", read=partial(_bound, option="--min"))
    ] = None,
    max: Annotated[
        float | None, Option(of="metric", metavar="NUMBER", read=partial(_bound, option="--max"))
    ] = None,
    tag: Annotated[Mapping[str, str] | None, Option(metavar="KEY=VALUE")] = None,
    since: Moment = None,
    until: Moment = None,
    where: Annotated[str | None, Option(metavar="SQL")] = None,
    limit: Count | None = None,
    order_by: Annotated[str | None, Option(metavar="SQL")] = None,
    after: Annotated[str | Path | None, Option(metavar="STORE")] = None,
    shard: Annotated[str | None, Option(metavar="I/N")] = None,
    last_inference_only: bool = False,
    template_variant: Annotated[str | None, Option(metavar="VARIANT")] = None,
    config: File = None,
    as_of: Moment = None,
    include_eval: bool = False,
    include_abandoned: bool = False,
    include_invalid: bool = False,
    targets: Literal["answer", "demonstration"] | None = None,
    max_bad: Annotated[int | None, Option(least=0, metavar="N")] = None,
    success: Annotated[str | None, Option(metavar="RULE")] = None,
    observation_path: Annotated[str | None, Option(metavar="PATH")] = None,
    action_path: Annotated[str | None, Option(metavar="PATH")] = None,
    max_threads: Count | None = None,
    max_server_memory: ServerMemory = None,
    ca_cert: File = None,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Exported:
    """Turn logged inferences and feedback into a store of episodes.

    Without --source the command reads the database or store that trajkit.toml names, else
    TENSORZERO_CLICKHOUSE_URL, else TENSORZERO_POSTGRES_URL, else the local stack. A bound belongs to the
    --metric before it. --metric alone requires that the metric was measured and, if boolean, is true.

    Evaluation episodes are left out and counted, and so are those that a rollout marked as abandoned: those
    broken off by a kill, Ctrl-C or a limit of the run, or spoiled by a service failure. A rollout that was
    killed and never resumed has marked nothing: use --metric episode_return, which is logged last. An answer
    that does not parse stays as a step, and is not learned.

    A condition of --where is an SQL expression, as for select: over columns of episodes such as n_steps,
    variant, started_at and n_output_tokens, metrics, tags (tags.KEY), and columns of single steps
    (step.NAME): then it selects steps. An unknown value fails every comparison, and passes a negated one. A
    condition on tokens, cost or outcome is decided after every episode that may pass has been read.

    Args:
        source: A ClickHouse or Postgres URL with user and password, an archive or a store, or its address.
        function: Learn the steps of this function; may be repeated.
        train_function: Of the exported steps, learn only those of this function; may be repeated.
        variant: Learn the steps of this variant; may be repeated.
        metric: Keep what this metric was measured on; may be repeated. In Python a mapping gives each metric
            its smallest and largest value.
        min: Smallest value of the metric before it.
        max: Largest value of the metric before it.
        tag: Keep episodes with this tag; may be repeated.
        since: Keep episodes that start then or later (ISO; UTC without an offset).
        until: Keep episodes that start before then.
        where: Keep the episodes, or steps, for which this is true.
        limit: Keep the first N episodes.
        order_by: Which episodes come first, such as 'episode_return desc'. Default: the oldest.
        after: Export only what is new, or scored again, since STORE was exported.
        shard: Keep the I-th of N parts; `trajkit merge` joins them.
        last_inference_only: Learn only the last step of each episode.
        template_variant: Render the prompts again with the templates of this variant.
        config: The tensorzero.toml that has the templates. Default: the configurations in the database.
        as_of: Read only what was logged until then. Default: now.
        include_eval: Export evaluation episodes too; not for training.
        include_abandoned: Also export episodes that a rollout abandoned.
        include_invalid: Also learn answers that do not parse.
        targets: Learn the model's answer, or the demonstration if a person gave one. Default: answer.
        max_bad: Continue with at most N unreadable rows; they stay as steps that are not learned. Default: 0.
        success: When an episode is a success. Default: the metric success, else progression >= 1.
        observation_path: Template argument that holds the observation. Default: observation.
        action_path: Field of the parsed output that holds the action. Default: action.
        max_threads: Maximum server threads per query; two queries run at a time.
        max_server_memory: Maximum server memory per query, such as 2GB; two queries run at a time.
        ca_cert: CA certificates (PEM) to trust.
        output: The store to write.
        dry_run: Print the tally and write nothing.

    Raises:
        RequestError: No source is named, or options do not go together.
        QueryError: A condition is invalid, or names something that does not exist.
        ServiceError: The database cannot be reached.
        NothingMatched: No episode is left.

    Example:
        trajkit export --metric episode_return --min 0.7
    """
    from pydantic import ValidationError

    from trajkit.sources.open import export_from, find_source, shown
    from trajkit.sources.request import ExportRequest, lineage_entry, parse_shard
    from trajkit.sources.tensorzero.export.after import earlier

    leave_pandas()
    limits, defaults = access(max_threads, max_server_memory, ca_cert), project()
    location = find_source(None if source is None else store_path(source), defaults)
    if not location.is_database:
        refuse_server_options(limits, why="a store is read on this machine")
    functions = many(function)
    if not functions and defaults.function and location.is_tensorzero:
        functions = (defaults.function,)
    given = {
        "functions": functions,
        "train_functions": many(train_function),
        "variants": many(variant),
        "tags": dict(tag or {}),
        "since": moment_of(since, "--since"),
        "until": moment_of(until, "--until"),
        "where": where,
        "limit": limit,
        "order_by": order_by,
        "after": None if after is None else earlier(store_path(after)),
        "shard": None if shard is None else parse_shard(shard),
        "last_inference_only": last_inference_only,
        "template_variant": template_variant,
        "template_config": None if config is None else str(config),
        "as_of": moment_of(as_of, "--as-of"),
        "include_eval": include_eval,
        "include_abandoned": include_abandoned,
        "include_invalid": include_invalid,
        "targets": targets,
        "max_bad": max_bad,
        "success": success,
        "observation_path": observation_path,
        "action_path": action_path,
    }
    try:
        request = ExportRequest(
            metrics=tuple(_conditions(metric, min, max)),
            **{name: value for name, value in given.items() if value is not None},
        )
    except ValidationError as error:
        raise RequestError(_first_message(error)) from error
    goal = None if dry_run else goal_of(_name(request), output)
    runs = engine_of(engine, has_shard=shard is not None)
    talk(f"reading {shown(location)} (from {location.named_by})")
    if runs is not None and goal is not None:
        if request.limit is not None:
            raise RequestError("--limit counts all episodes, and a shard sees only its own: leave --on out")
        tally, manifest = _in_shards(runs, location, request, goal, limits)
    else:
        with Meter() as meter:
            tally, manifest = export_from(location, request, goal, on_progress=meter.show, access=limits)
    if tally.since is not None and request.after is not None and (n := tally.since.n_episodes_refused):
        verb, them = ("passes", "it") if n == 1 else ("pass", "them")
        talk(
            f"{plural(n, 'episode')} of {request.after.path.name} no longer {verb}: that store still has"
            f" {them}, and so has a merge with this one"
        )
    return Exported(
        manifest.lineage[-1] if manifest is not None else lineage_entry(request, tally),
        goal,
        manifest,
        report=tally,
        after=None if request.after is None else request.after.path.name,
    ).kept()


def _in_shards(
    engine: Engine, location: Location, request: ExportRequest, goal: Path, access: Access
) -> tuple[Tally, Manifest | None]:
    from trajkit._core.files import refuse_existing
    from trajkit.curation.merge import join
    from trajkit.sources.open import export_from, shown
    from trajkit.sources.request import lineage_entry
    from trajkit.sources.shards import export_shards
    from trajkit.sources.tensorzero.export.whole import added_up

    if not location.is_tensorzero:
        raise RequestError("a store is in parts already: leave --on out", hint="trajkit select --on reads it")
    refuse_existing(goal)
    if location.named_by == "--source":
        refuse_secrets([("--source", "source", location.value.get_secret_value())])
    with shards_for(engine, "export", goal, reads=shown(location)) as shards:
        tallies, stores = export_shards(location, request, shards, access)
        tally = added_up(tallies, request)
        if not stores:  # reports what there is, as an export without shards
            export_from(location, request, None, on_progress=lambda *_: None, access=access)
        return tally, join(stores, goal, lineage=[lineage_entry(request, tally)])


def _conditions(
    metric: Many | Mapping[str, tuple[float | None, float | None]], least: float | None, most: float | None
) -> Iterator[MetricCondition]:
    from trajkit.sources.request import MetricCondition

    is_bounded = least is not None or most is not None
    if isinstance(metric, Mapping):
        if is_bounded:
            raise RequestError("bounds are given twice", hint="in the mapping, or as min and max of one")
        for name, (low, high) in metric.items():
            yield MetricCondition(name=name, min=low, max=high)
        return
    names = many(metric)
    if is_bounded and len(names) != 1:
        raise RequestError(
            f"min and max bound one metric, and {len(names)} are named",
            hint="metric={'episode_return': (0.7, None), 'n_invalid': (None, 3)}",
        )
    for name in names:
        yield MetricCondition(name=name, min=least, max=most)


def _first_message(error: Any) -> str:
    """The validator's own words, without pydantic's prefix."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    text: str = first["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where and first["type"] != "value_error" else text


def _name(request: ExportRequest) -> str:
    """Default name of a store: after the first metric."""
    name = request.metrics[0].name if request.metrics else "export"
    safe = "".join(character if character.isalnum() or character in "-_." else "-" for character in name)
    return safe.strip(".") or "export"
