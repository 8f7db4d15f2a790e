"""Turn what TensorZero logged into a store of episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trajkit._core.settings import project
from trajkit.commands.place import Many, Place, many, remember_store
from trajkit.commands.server import access, refuse_server_options
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.schema import Manifest
    from trajkit.sources.request import ExportRequest, MetricCondition, Tally
    from trajkit.store.dataset import Dataset


class Exported(NamedTuple):
    """What an export brought."""

    tally: Tally
    """What was seen, kept, and left by reason."""
    path: Path | None
    """The store; None after a dry run."""
    manifest: Manifest | None
    """What it says about itself; None after a dry run."""

    @property
    def dataset(self) -> Dataset:
        """The episodes that were brought.

        Raises:
            RequestError: It was a dry run.
        """
        from trajkit.store.dataset import open_dataset

        if self.path is None:
            raise RequestError("a dry run makes no store", hint="leave dry_run out")
        return open_dataset(self.path)


def export(
    *,
    source: str | Path | None = None,
    function: Many = (),
    train_function: Many = (),
    variant: Many = (),
    metric: Many | Mapping[str, tuple[float | None, float | None]] = (),
    min: float | None = None,
    max: float | None = None,
    tag: Mapping[str, str] | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    where: str | None = None,
    limit: int | None = None,
    order_by: str | None = None,
    after: str | Path | None = None,
    shard: str | None = None,
    last_inference_only: bool = False,
    template_variant: str | None = None,
    config: Place | None = None,
    as_of: str | datetime | None = None,
    include_eval: bool = False,
    include_abandoned: bool = False,
    include_invalid: bool = False,
    targets: Literal["answer", "demonstration"] | None = None,
    max_bad: int | None = None,
    success: str | None = None,
    observation_path: str | None = None,
    action_path: str | None = None,
    max_threads: int | None = None,
    max_server_memory: int | None = None,
    ca_cert: Place | None = None,
    output: Place | None = None,
    dry_run: bool = False,
) -> Exported:
    """Turn logged inferences and feedback into a store of episodes.

    Args:
        source: A database URL, an archive or a store; None for what trajkit.toml, the environment or the
            local stack names.
        function: Functions whose steps are learned.
        train_function: Of the steps that are brought, learn only these functions'.
        variant: Variants whose steps are learned.
        metric: Keep what these were measured on; a mapping gives each its smallest and largest value.
        min: Smallest value of the only metric.
        max: Largest value of the only metric.
        tag: Keep episodes with these tags.
        since: Episodes that start then or later (UTC without an offset).
        until: Episodes that start before then.
        where: Keep the episodes, or steps, for which this SQL is true.
        limit: Keep the first so many episodes.
        order_by: Which come first, as SQL; None for the oldest.
        after: Bring only what is new, or scored anew, since this store was exported.
        shard: `I/N`: the I-th of N parts.
        last_inference_only: Learn only the last step of each episode.
        template_variant: Render the prompts anew with this variant's templates.
        config: The `tensorzero.toml` that has them.
        as_of: Only what was logged until then.
        include_eval: Bring evaluation episodes too; they must not train.
        include_abandoned: Bring episodes too that a rollout left half-played.
        include_invalid: Learn answers that do not parse as well.
        targets: Learn what the model said, or what somebody said it should have.
        max_bad: Most rows that may be unreadable; None for none.
        success: When an episode is a success.
        observation_path: Template argument of the observation.
        action_path: Field of the parsed output that is the action.
        max_threads: Most threads of the server for a query.
        max_server_memory: Most memory of the server for a query, in bytes.
        ca_cert: Trust the certificates that these (PEM) have signed.
        output: The store to write; None for one in the folder of stores.
        dry_run: Write nothing.

    Raises:
        RequestError: Nothing names a source, or options do not go together.
        QueryError: A condition is wrong, or names what is not there.
        ServiceError: The database cannot be reached.
        NothingMatched: No episode is left.
    """
    from trajkit.sources.open import export_from, find_source
    from trajkit.sources.request import parse_time

    asked = access(max_threads, max_server_memory, ca_cert)
    defaults = project()
    location = find_source(None if source is None else str(source), defaults)
    if not location.is_database:
        refuse_server_options(asked, why="a store is read on this machine")
    functions = many(function)
    if not functions and defaults.function and location.is_tensorzero:
        functions = (defaults.function,)
    times = {"since": since, "until": until, "as_of": as_of}
    given = {
        "functions": functions,
        "train_functions": many(train_function),
        "variants": many(variant),
        "tags": dict(tag or {}),
        **{
            name: parse_time(moment, option=name) if isinstance(moment, str) else _utc(moment)
            for name, moment in times.items()
        },
        "where": where,
        "limit": limit,
        "order_by": order_by,
        "after": after,
        "shard": shard,
        "last_inference_only": last_inference_only,
        "template_variant": template_variant,
        "template_config": None if config is None else str(config),
        "include_eval": include_eval,
        "include_abandoned": include_abandoned,
        "include_invalid": include_invalid,
        "targets": targets,
        "max_bad": max_bad,
        "success": success,
        "observation_path": observation_path,
        "action_path": action_path,
    }
    request = export_request(given, [each._asdict() for each in _conditions(metric, min, max)])
    goal = None if dry_run else export_goal(Path(defaults.stores), request, output)
    tally, manifest = export_from(
        location, request, goal, on_progress=lambda what, n_done, n_total: None, access=asked
    )
    if goal is not None and manifest is not None:
        remember_store(goal)
    return Exported(tally, goal, manifest)


class _Condition(NamedTuple):
    name: str
    min: float | None
    max: float | None


def _conditions(
    metric: Many | Mapping[str, tuple[float | None, float | None]], least: float | None, most: float | None
) -> list[_Condition]:
    is_bounded = least is not None or most is not None
    if isinstance(metric, Mapping):
        if is_bounded:
            raise RequestError("bounds are given twice", hint="in the mapping, or as min and max of one")
        return [_Condition(name, low, high) for name, (low, high) in metric.items()]
    names = many(metric)
    if is_bounded and len(names) != 1:
        raise RequestError(
            f"min and max bound one metric, and {len(names)} are named",
            hint="metric={'episode_return': (0.7, None), 'n_invalid': (None, 3)}",
        )
    return [_Condition(name, least, most) for name in names]


def _utc(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def export_request(given: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]]) -> ExportRequest:
    """What an export is asked for.

    Args:
        given: Fields of the request; `after` is a store's path and `shard` as it is typed. None or nothing
            leaves a field as it is.
        conditions: Fields of each metric's condition.

    Raises:
        RequestError: Options do not go together.
        QueryError: One cannot be read.
    """
    from pydantic import ValidationError

    from trajkit.sources.request import ExportRequest, parse_shard
    from trajkit.sources.tensorzero.after import earlier

    values = {name: value for name, value in given.items() if value is not None and value != ()}
    try:
        if "after" in values:
            values["after"] = earlier(str(values["after"]))
        if "shard" in values:
            values["shard"] = parse_shard(values["shard"])
        return ExportRequest(**values, metrics=tuple(_metric(each) for each in conditions))
    except ValidationError as error:
        raise RequestError(_first_message(error)) from error


def _metric(fields: Mapping[str, Any]) -> MetricCondition:
    from trajkit.sources.request import MetricCondition

    return MetricCondition(**fields)


def _first_message(error: Any) -> str:
    """The validator's own words, without pydantic's prefix."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    text: str = first["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where and first["type"] != "value_error" else text


def export_goal(stores: Path, request: ExportRequest, given: Place | None = None) -> Path:
    """What was asked for, else `<stores>/<metric>-<UTC time>`, with a number where that is taken."""
    if given is not None:
        return Path(given)
    name = request.metrics[0].name if request.metrics else "export"
    safe = "".join(character if character.isalnum() or character in "-_." else "-" for character in name)
    base = stores / f"{safe.strip('.') or 'export'}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    goal, number = base, 1
    while goal.exists():
        number += 1
        goal = base.with_name(f"{base.name}-{number}")
    return goal
