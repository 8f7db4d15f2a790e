"""`trajkit export`: turn logged inferences and feedback into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core.console import Cell, Meter, count, plural, result, result_json, table, talk
from trajkit._core.memory import leave_pandas
from trajkit._core.settings import project
from trajkit.cli.server_options import access_of, server_options
from trajkit.commands.export import export_goal, export_request
from trajkit.commands.place import remember_store
from trajkit.commands.server import refuse_server_options
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.schema import Manifest
    from trajkit.sources.request import ExportRequest, Tally

_BOUNDS = ("min", "max")


class _Ordered(click.Command):
    """Keeps the order of --metric, --min and --max: a bound belongs to the metric before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        taken = {name: iter(values.get(name) or ()) for name in ("metric", *_BOUNDS)}
        ctx.meta["trajkit.conditions"] = [
            (parameter.name, next(taken[parameter.name])) for parameter in order if parameter.name in taken
        ]
        return super().parse_args(ctx, args)


_EPILOG = """\
Without --source it reads the database or store that trajkit.toml names, else TENSORZERO_CLICKHOUSE_URL, else
TENSORZERO_POSTGRES_URL, else the local stack. A bound belongs to the --metric before it; --metric alone asks
only that it was measured, and for a boolean metric that it is true. Evaluation episodes are left out and
counted, and so are those that a rollout marked as abandoned: half-played, or spoiled by a service. A rollout
that was killed and never went on has marked nothing: ask for --metric episode_return, which is logged last.
An answer that does not parse stays as a step, and is not learned.

A condition of --where is an SQL expression, as for select: over columns of episodes such as n_steps, variant,
started_at and n_output_tokens, metrics, tags (tags.KEY), and what single steps have (step.NAME): then it
chooses steps. What was never measured passes no comparison, and passes a negated one. What tokens, cost or
outcome say is known only once all that may be meant is read.
"""


@click.command(cls=_Ordered, epilog=_EPILOG)
@click.option(
    "--source",
    metavar="URL|ARCHIVE|STORE",
    help="A ClickHouse or Postgres URL with user and password, an archive, or a store.",
)
@click.option("--function", "functions", multiple=True, help="Learn this function's steps; may be repeated.")
@click.option(
    "--train-function",
    "train_functions",
    multiple=True,
    metavar="FUNCTION",
    help="Of the steps that are brought, learn only this function's; may be repeated.",
)
@click.option("--variant", "variants", multiple=True, help="Learn this variant's steps; may be repeated.")
@click.option(
    "--metric", multiple=True, metavar="NAME", help="Keep what this metric was measured on; repeatable."
)
@click.option("--min", "min", multiple=True, metavar="NUMBER", help="Smallest value of the metric before it.")
@click.option("--max", "max", multiple=True, metavar="NUMBER", help="Largest value of the metric before it.")
@click.option(
    "--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Keep episodes with this tag; repeatable."
)
@click.option(
    "--since", metavar="TIME", help="Episodes that start then or later (ISO; UTC without an offset)."
)
@click.option("--until", metavar="TIME", help="Episodes that start before then.")
@click.option("--where", metavar="SQL", help="Keep the episodes, or steps, for which this is true.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Keep the first N episodes.")
@click.option(
    "--order-by",
    metavar="SQL",
    help="Which come first, such as 'episode_return desc'.  [default: the oldest]",
)
@click.option(
    "--after", metavar="STORE", help="Bring only what is new, or scored anew, since STORE was exported."
)
@click.option("--shard", metavar="I/N", help="Keep the I-th of N parts; `trajkit merge` puts them together.")
@click.option("--last-inference-only", is_flag=True, help="Learn only the last step of each episode.")
@click.option(
    "--template-variant", metavar="VARIANT", help="Render the prompts anew with this variant's templates."
)
@click.option(
    "--config",
    "template_config",
    metavar="FILE",
    help="The tensorzero.toml that has them.  [default: what the database keeps]",
)
@click.option("--as-of", metavar="TIME", help="Only what was logged until then.  [default: now]")
@click.option("--include-eval", is_flag=True, help="Bring evaluation episodes too; they must not train.")
@click.option("--include-abandoned", is_flag=True, help="Bring episodes too that a rollout left half-played.")
@click.option("--include-invalid", is_flag=True, help="Learn answers that do not parse as well.")
@click.option(
    "--targets",
    type=click.Choice(["answer", "demonstration"]),
    help="Learn what the model said, or what somebody said it should have.  [default: answer]",
)
@click.option(
    "--max-bad",
    type=click.IntRange(0),
    metavar="N",
    help="Go on with as many rows that cannot be read; they stay as steps, not learned.  [default: 0]",
)
@click.option(
    "--success",
    metavar="RULE",
    help="When an episode is a success.  [default: the metric success, else progression >= 1]",
)
@click.option("--observation-path", metavar="PATH", help="Template argument of the observation.")
@click.option("--action-path", metavar="PATH", help="Field of the parsed output that is the action.")
@server_options
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Print the tally and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the tally as JSON.")
@click.pass_context
def export(
    ctx: click.Context,
    /,
    source: str | None,
    goal: Path | None,
    dry_run: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Turn logged inferences and feedback into a store of episodes.

    \b
    trajkit export --metric episode_return --min 0.7
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.sources.open import export_from, find_source, shown

    leave_pandas()
    access = access_of(asked)
    defaults = project()
    location = find_source(source, defaults)
    if not asked["functions"] and defaults.function and location.is_tensorzero:
        asked["functions"] = (defaults.function,)
    if not location.is_database:
        refuse_server_options(access, why="a store is read on this machine")
    request = _request(ctx.meta["trajkit.conditions"], asked)
    goal = None if dry_run else export_goal(Path(defaults.stores), request, goal)
    talk(f"reading {shown(location)} (from {location.named_by})")
    with Meter() as meter:
        tally, manifest = export_from(location, request, goal, on_progress=meter.show, access=access)
    if as_json:
        result_json(_as_json(tally, manifest, goal))
    else:
        _print_tally(tally, request)
    _warn_refused(tally, request)
    if goal is None or manifest is None:
        talk("dry run: nothing was written")
        return
    remember_store(goal)
    if not as_json:
        kept = f"{plural(manifest.counts.n_episodes, 'episode')}  {plural(manifest.counts.n_steps, 'step')}"
        result(f"{goal}  {kept}  digest {manifest.digest[:12]}")


def _request(given: list[tuple[str, str]], asked: dict[str, Any]) -> ExportRequest:
    from trajkit.sources.request import parse_time

    values: dict[str, Any] = {
        name: value for name, value in asked.items() if value != () and name not in ("metric", *_BOUNDS)
    }
    values["tags"] = _tags(asked["tags"])
    for option in ("since", "until", "as_of"):
        if asked[option] is not None:
            values[option] = parse_time(asked[option], option=f"--{option.replace('_', '-')}")
    return export_request(values, _conditions(given))


def _conditions(given: list[tuple[str, str]]) -> list[dict[str, Any]]:
    from trajkit.sources.request import parse_bound

    found: list[dict[str, Any]] = []
    for option, text in given:
        if option == "metric":
            if any(condition["name"] == text for condition in found):
                raise RequestError(
                    f"--metric {text} is there twice", hint="give its --min and --max after one of them"
                )
            found.append({"name": text})
        elif not found:
            raise RequestError(
                f"--{option} {text} has no --metric before it", hint=f"--metric NAME --{option} {text}"
            )
        elif option in found[-1]:
            raise RequestError(f"--metric {found[-1]['name']} has two --{option}")
        else:
            found[-1][option] = parse_bound(text, option=f"--{option}")
    return found


def _tags(given: tuple[str, ...]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise RequestError(f"--tag {text!r} is not KEY=VALUE", hint="such as --tag trajkit.task=goto")
        if key in tags and tags[key] != value:
            raise RequestError(f"--tag {key} is there with two values", hint="a tag has one value")
        tags[key] = value
    return tags


def _warn_refused(tally: Tally, request: ExportRequest) -> None:
    if tally.since is not None and request.after is not None and (n := tally.since.n_episodes_refused):
        verb = "passes" if n == 1 else "pass"
        talk(
            f"{plural(n, 'episode')} of {request.after.path.name} no longer {verb}: that store still has"
            f" {'it' if n == 1 else 'them'}, and so has a merge with this one"
        )


def _print_tally(tally: Tally, request: ExportRequest) -> None:
    rows = [("seen", tally.n_episodes_seen, tally.n_steps_seen)]
    rows += [(f"left: {entry.reason}", entry.n_episodes, entry.n_steps) for entry in tally.left]
    rows += [("kept", tally.n_episodes_kept, tally.n_steps_kept)]
    lines = [(name, count(n_episodes), count(n_steps)) for name, n_episodes, n_steps in rows]
    if tally.since is not None and request.after is not None:
        lines += [
            (f"  of them new since {request.after.path.name}", count(tally.since.n_episodes_new), ""),
            ("  of them scored anew or gone on", count(tally.since.n_episodes_again), ""),
        ]
    lines += [(f"  of them not learned: {entry.reason}", "", count(entry.n_steps)) for entry in tally.masked]
    table([Cell(""), Cell("episodes", is_number=True), Cell("steps", is_number=True)], lines)


def _as_json(tally: Tally, manifest: Manifest | None, goal: Path | None) -> dict[str, Any]:
    return {
        "store": None if goal is None else str(goal),
        "digest": None if manifest is None else manifest.digest,
        **tally.model_dump(mode="json"),
    }
