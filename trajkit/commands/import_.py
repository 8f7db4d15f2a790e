"""Import files that other tools wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from trajkit._core.output.console import Meter, count, plural, talk
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import DataFile, Moment, Option, Output, Place, moment_of
from trajkit.commands.place import goal_of
from trajkit.commands.result import Made
from trajkit.commands.sharding import refuse_secrets, shards_for, state_of
from trajkit.errors import RequestError

if TYPE_CHECKING:
    from trajkit.engines.engine import Engine
    from trajkit.schema import LineageEntry
    from trajkit.sources.files.importing import Imported as ImportReport
    from trajkit.sources.files.importing import Wish


@dataclass(frozen=True, repr=False)
class Imported(Made):
    """The imported store; `report` shows what was read, and what could not be."""

    def to_json(self) -> dict[str, Any]:
        """The report."""
        report: ImportReport = self.report
        return report.model_dump(mode="json")


def _named(text: str) -> tuple[str, str]:
    """A name and its place; `columns.reward` alone is named by its last part."""
    name, equals, place = text.partition("=")
    name = name if equals else text.rpartition(".")[2]
    if not name or not (place or text):
        raise RequestError(f"{text!r} is not NAME=PLACE", hint="such as reward=columns.reward")
    return name, place or text


@flattened()
def import_(
    path: DataFile | None = None,
    *,
    from_: Annotated[str | None, Option(metavar="FORMAT")] = None,
    skip_bad: bool = False,
    include_errored: bool = False,
    success: Annotated[str | None, Option(metavar="RULE")] = None,
    metric: Annotated[Mapping[str, str] | None, Option(metavar="NAME=PLACE", pair=_named)] = None,
    tag: Annotated[Mapping[str, str] | None, Option(metavar="NAME=PLACE", pair=_named)] = None,
    task: Annotated[str | None, Option(metavar="PLACE")] = None,
    purpose: Literal["train", "eval", "unknown"] | None = None,
    since: Moment = None,
    until: Moment = None,
    output: Output = None,
    **engine: Unpack[EngineOptions],
) -> Imported:
    """Import what other systems recorded: files, folders and databases.

    An unreadable document ends the import, and is named with its place; with --skip-bad it is left
    out and counted.

    Formats: atif (Harbor's trajectories, 1.0 to 1.8), adp (Agent Data Protocol), sts (session traces of the
    Hugging Face Hub), sharegpt, openai-chat, hf-messages and alpaca (conversations, as JSON lines or
    Parquet), preference (chosen and rejected answers: two episodes per row, for `trajkit pairs --match prompt
    --score preferred --margin 1`), inspect (logs, .eval and .json), balrog, harbor and benchflow (folders of
    results), or module:NAME of your own.

    Sources: docs/sources.md lists them with what each can and cannot tell.

    Args:
        path: A file, a folder or a URL. Default: where the source that --from names keeps its records on
            this machine.
        from_: The format or source of PATH. Default: recognised from PATH.
        skip_bad: Leave out unreadable documents, and count them.
        include_errored: Also take trials that ended in an error (else set aside).
        success: When an episode is a success, as in 'reward >= 0.5'. Default: by the format.
        metric: A metric of each episode, from a place in the document beside its messages, such as
            reward=columns.reward.
        tag: A tag of each episode, from such a place, such as customer=columns.customer: other commands use
            it with `--by tags.customer`.
        task: Place of the task in a document, such as columns.task. Default: by the format.
        purpose: What the episodes were played for. Default: as recorded in the files.
        since: Leave out episodes whose last answer is before this time (ISO; UTC without an offset).
        until: Leave out episodes that start at this time or later.
        output: The store to write.

    Raises:
        DataError: A document is unreadable, or the format of the files is unknown.
        StoreError: `output` exists.
    """
    from trajkit.schema import Purpose
    from trajkit.sources.catalog import is_personal
    from trajkit.sources.files.importing import Wish, import_files
    from trajkit.store.reader import open_store

    place = _place(path, from_)
    goal = goal_of("import", output)
    wish = Wish(
        format=from_,
        skip_bad=skip_bad,
        include_errored=include_errored,
        success=success,
        metrics=dict(metric or {}),
        tags=dict(tag or {}),
        task=task,
        purpose=None if purpose is None else Purpose(purpose),
        since=moment_of(since, "--since"),
        until=moment_of(until, "--until"),
    )
    runs = engine_of(engine)
    done = None if runs is None else _in_shards(runs, place, goal, wish)
    if done is None:
        with Meter() as meter:
            done = import_files(place, goal, wish, on_progress=meter.show)
    report, entry = done
    for note in _notes(report):
        talk(note)
    if is_personal(report.format):
        talk(f"such records often hold keys and private text: trajkit redact {goal}")
    return Imported(entry, goal, open_store(goal).manifest, report=report).kept()


def _in_shards(
    engine: Engine, place: str, goal: Path, wish: Wish
) -> tuple[ImportReport, LineageEntry] | None:
    """Import in several processes; None if ids repeat, which only a single reader can number."""
    from trajkit._core.files import refuse_existing
    from trajkit.curation.merge import has_repeated, join
    from trajkit.sources.files.importing import read_shards, shown_place

    refuse_existing(goal)
    refuse_secrets([("PATH", "path", place)])
    with shards_for(engine, "import", goal, reads=state_of(Path(place))) as shards:
        intake, stores = read_shards(place, wish, shards)
        if has_repeated(stores):
            talk("two shards have an episode of the same id: importing again in one process")
            return None
        path = shown_place(place)
        entry = intake.entry(path)
        return intake.imported(path, goal, join(stores, goal, lineage=(entry,))), entry


def _place(path: Place | None, name: str | None) -> str:
    """What to read: PATH, else the place of a source."""
    from trajkit.sources.catalog import source_named, source_names

    if path is not None:
        return str(path)
    if name is None or name not in source_names():
        raise RequestError("no PATH is given: a file, a folder or a URL", hint="trajkit import PATH")
    place = source_named(name).default_place()
    if place is None or not place.exists():
        known = "" if place is None else f": there is no {place}"
        raise RequestError(f"{name} has no records in its usual place{known}", hint="name them: PATH or URL")
    return str(place)


def _notes(report: ImportReport) -> Iterator[str]:
    exact = f", {count(report.n_exact)} of them written by trajkit" if report.n_exact else ""
    yield f"read {report.path} as {report.format}: {plural(report.n_documents, 'document')}{exact}"
    for what, number in report.missing.items():
        yield f"not known: {what} ({plural(number, 'session')})"
    for suffix, number in report.unread.items():
        yield f"not read: {plural(number, 'file')} with the suffix {suffix}"
    if report.n_text_calls:
        yield (
            f"{plural(report.n_text_calls, 'answer')} with <function=NAME> stay text, not tool calls:"
            " the prompts of such agents teach this form, and their results are user messages"
        )
    if report.format == "preference":
        yield f"pairs of them: trajkit pairs {report.store} --match prompt --score preferred --margin 1"
    for problem in report.problems:
        yield f"left out: {problem}"
