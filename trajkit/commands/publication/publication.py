"""What `trajkit push` sends, made in a folder from stores or a model, and what it shows before it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from trajkit._core.output import console
from trajkit.commands.play.local_model import job_of, model_folder
from trajkit.errors import DataError, RequestError

if TYPE_CHECKING:
    from trajkit.curation.redaction.column import RedactReport
    from trajkit.curation.redaction.gate import Opinion
    from trajkit.publishing.card import CardWish
    from trajkit.publishing.facts import Facts
    from trajkit.publishing.files.contents import Contents
    from trajkit.publishing.hub import Kind
    from trajkit.publishing.model import Measured, Origin
    from trajkit.publishing.push import PushPlan
    from trajkit.publishing.record import Record
    from trajkit.store.reader import Store

_MOST_FILES = 12
Progress = Callable[[str, int, int | None], None]


class Ready(NamedTuple):
    """Everything that is sent, made in a folder."""

    kind: Kind
    """`dataset` or `model`."""
    record: Record
    """The record of the commit."""
    splits: Mapping[str, Store]
    """The stores by split; none for a model."""
    facts: Facts | None = None
    """What is known about the stores: leaks, replays, secrets; None for a model."""


class ModelOptions(NamedTuple):
    """The options that only a model has."""

    merged: bool = False
    base: str | None = None
    dataset: str | None = None
    evaluation: Path | None = None


class Search:
    """The search for secrets and personal data, and whether what it finds may be published.

    Args:
        patterns: More that must not be published: names to regular expressions.
        has_gate: Whether another scanner also runs, if one is on the PATH.
        may_find: Whether findings are not an error.
        say: Gets what is found.
    """

    def __init__(
        self, patterns: Mapping[str, str], *, has_gate: bool, may_find: bool, say: Callable[[str], None]
    ) -> None:
        from trajkit.publishing.file_scan import with_environment

        self.patterns = with_environment(dict(patterns))
        self.has_gate = has_gate
        self.say = say
        self._may_find = may_find

    def refuse(self, n_found: int, opinions: Iterable[Opinion | None]) -> None:
        """Print the opinions, and raise if the search or another scanner found something.

        Raises:
            DataError: One did, and findings are an error.
        """
        n_theirs, program = 0, ""
        for opinion in opinions:
            if opinion is not None:
                self.say(opinion_line(opinion))
                n_theirs, program = n_theirs + sum(opinion.n_by_rule.values()), opinion.program
        if self._may_find:
            return
        if n_found:
            raise DataError(
                f"{n_found:,} {'secret' if n_found == 1 else 'secrets'} or personal data would be published",
                hint="`trajkit redact STORE -o STORE2` removes them from texts; a name must be changed;"
                " --allow-findings publishes them",
            )
        if n_theirs:
            raise DataError(
                f"{program} finds {n_theirs:,} more that would be published",
                hint="`trajkit redact --pattern` removes what you name; --allow-findings publishes them",
            )

    def refuse_files(self, n_found: int, folder: Path, names: Iterable[str]) -> None:
        """The same about files, which the other scanner reads here.

        Raises:
            DataError: Something was found, and findings are an error.
        """
        from trajkit.curation.redaction.gate import opinion_of
        from trajkit.publishing.file_scan import file_texts

        self.refuse(n_found, [opinion_of(file_texts(folder, names))] if self.has_gate else [])


def make(
    what: Sequence[str],
    folder: Path,
    wish: CardWish,
    search: Search,
    *,
    runs: Path,
    of_model: ModelOptions,
    has_traces: bool,
    on_progress: Progress,
) -> Ready:
    """Make everything that is sent, and print what is known about it.

    Args:
        what: Stores, or a model.
        folder: Where it is made.
        wish: The content of the card.
        search: Looks for secrets, and prints what is known.
        runs: The folder where jobs are kept.
        of_model: The options of a model.
        has_traces: Whether session traces are published with stores.
        on_progress: Gets the progress.

    Raises:
        RequestError: An option makes no sense with what is published.
        DataError: The search found secrets.
    """
    model = _model(what[0], runs, of_model) if len(what) == 1 else None
    if model is not None:
        if has_traces:
            raise RequestError("--traces makes no sense with a model")
        return _make_model(*model, _measured(of_model.evaluation), folder, wish, search)
    for name, value in of_model._asdict().items():
        if value:
            raise RequestError(f"--{name} makes no sense with a store")
    return _make_dataset(what, folder, wish, search, has_traces=has_traces, on_progress=on_progress)


def _make_model(
    model: Path, origin: Origin, measured: Measured | None, folder: Path, wish: CardWish, search: Search
) -> Ready:
    from trajkit.publishing.card import CARD
    from trajkit.publishing.model import make_model_contents

    made = make_model_contents(model, folder, wish, origin, measured=measured, patterns=search.patterns)
    for line in scanned_lines(made.scanned):
        search.say(line)
    names = [*(file.path for file in made.record.files), CARD]
    search.refuse_files(made.scanned.n_found, folder, names)
    return Ready("model", made.record, {})


def _make_dataset(
    what: Sequence[str],
    folder: Path,
    wish: CardWish,
    search: Search,
    *,
    has_traces: bool,
    on_progress: Progress,
) -> Ready:
    from trajkit.curation.redaction.gate import second_opinion
    from trajkit.publishing.card import CARD, dataset_card
    from trajkit.publishing.facts import Scanned, facts_of, splits_of
    from trajkit.publishing.file_scan import scan_files
    from trajkit.publishing.files.contents import make_contents
    from trajkit.publishing.record import RECORD

    splits = splits_of(tuple(what))
    facts = facts_of(splits, patterns=search.patterns)
    for line in fact_lines(facts):
        search.say(line)
    opinions = [second_opinion(store.path) for store in splits.values()] if search.has_gate else []
    search.refuse(facts.n_findings, opinions)
    contents = make_contents(splits, folder, has_traces=has_traces, on_progress=on_progress)
    (folder / CARD).write_text(dataset_card(contents, facts, wish), encoding="utf-8")
    # names, the store's past in the record, and the card are in no column of a store
    names = [*(file.path for file in contents.record.files), CARD, RECORD]
    scanned = scan_files(folder, names, patterns=search.patterns)
    if scanned.n_found:
        for line in scanned_lines(scanned):
            search.say(line)
        more = Scanned(split="names and files", report=scanned)
        facts = facts.model_copy(update={"scanned": (*facts.scanned, more)})
        (folder / CARD).write_text(dataset_card(contents, facts, wish), encoding="utf-8")
    search.refuse_files(scanned.n_found, folder, names)
    for line in content_lines(contents):
        search.say(line)
    return Ready("dataset", contents.record, splits, facts)


def _model(name: str, runs_folder: Path, options: ModelOptions) -> tuple[Path, Origin] | None:
    """The folder of a job's model or adapter, or of a named one, and its origin.

    None if it is not a model, and so a store.

    Raises:
        RequestError: The job has no model on this machine.
    """
    from trajkit.publishing.model import Origin, is_model

    found = job_of(name, runs_folder)
    folder = Path(name)
    if found is None and not is_model(folder):
        return None
    if found is None:
        if options.merged:
            raise RequestError(f"--merged is for jobs; {name} is a model", hint="name the job")
        origin = Origin(base=options.base, dataset=options.dataset)
        return folder, origin
    runs, job = found
    if job.target != "local":
        raise RequestError(f"job {job.job_id} was tuned by {job.target}: its model is not on this machine")
    if options.merged:
        from trajkit.training.local.outcome.finish import write_merged

        folder = write_merged(runs, job)
    else:
        folder = model_folder(name, runs, job)
    origin = Origin(
        base=options.base or job.base,
        data_digest=None if job.train is None else job.train.digest,
        dataset=options.dataset,
        job_id=job.job_id,
    )
    return folder, origin


def _measured(path: Path | None) -> Measured | None:
    if path is None:
        return None
    from trajkit.evaluation.reports.model import ReportData
    from trajkit.evaluation.reports.object import JSON
    from trajkit.evaluation.reports.text import group_table, said_of
    from trajkit.publishing.model import Measured

    file = path / JSON if path.is_dir() else path
    try:
        report = ReportData.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{file} is not a report: {str(error).splitlines()[0]}", hint="trajkit report STORE… -o REPORT"
        ) from error
    table = group_table(report)
    return Measured(headings=table.headings, rows=tuple(table.rows), said=said_of(report))


def fact_lines(facts: Facts) -> Iterator[str]:
    """Leaks, replays, and what the search for secrets found; never a value."""
    for each in facts.compared:
        other = "reserved worlds" if each.evaluation is None else each.evaluation
        yield f"leak: {each.train} and {other}: {'LEAK' if each.leaks else 'none'}"
        yield from (f"  {line}" for line in each.lines if each.leaks)
    for replay in facts.replayed:
        yield (
            f"replay: {replay.split}: {replay.n_verified:,} of {replay.n_episodes:,} episodes verified, "
            f"{replay.n_different:,} different"
        )
    if not facts.replayed:
        yield "replay: not known (`trajkit replay` plays the episodes again)"
    for scanned in facts.scanned:
        yield from scanned_lines(scanned.report, scanned.split)


def scanned_lines(report: RedactReport, where: str = "files") -> Iterator[str]:
    """What the search for secrets found, by kind and place."""
    if not report.n_found:
        yield f"secrets: {where}: nothing found in {console.plural(report.n_texts, 'text')}"
    for found in report.found:
        yield f"secrets: {where}: {found.n_found:,} {found.kind} in {found.place}"


def opinion_line(opinion: Opinion) -> str:
    """The result of another scanner."""
    rules = ", ".join(f"{rule} {n:,}" for rule, n in sorted(opinion.n_by_rule.items()))
    return f"{opinion.program}: {f'it finds {rules}' if rules else 'nothing found'}"


def content_lines(contents: Contents) -> Iterator[str]:
    """Rows by split, and what is in none."""
    for rows in contents.rows:
        yield f"sft: {rows.split}: {console.plural(rows.n_rows, 'row')} to train on"
        if rows.format == "trl-prompt-completion":
            yield f"  written as {rows.format}: trl-messages teaches every answer, and some are only context"
        for reason, number in rows.left.items():
            yield f"  in no row: {console.plural(number, 'step')}: {reason}"
        for kind, number in rows.losses.items():
            yield f"  left out of the rows: {number:,} {kind}"
        if rows.n_evaluation_left:
            yield f"  in no row: {console.plural(rows.n_evaluation_left, 'evaluation episode')}"
    for moved in contents.record.moved:
        what = "row" if moved.table == "sft" else "value"
        yield f"too wide for the viewer: {console.plural(moved.n_values, what)} of {moved.table}, in moved/"


def plan_lines(plan: PushPlan, licence: str | None, *, is_seen: bool = True) -> Iterator[str]:
    """Where to, for whom, and which files.

    Args:
        plan: The plan.
        licence: The licence that the user gave.
        is_seen: Whether the dataset on the Hub was read.
    """
    there = "new" if plan.remote is None else f"there, at {plan.remote.commit[:12]}"
    there = there if is_seen else "the Hub was not called"
    yield f"{plan.kind}: {plan.repository} ({there})"
    yield f"seen by: {'EVERYBODY' if plan.is_public else 'its owner'}"
    yield f"licence: {licence or 'unknown'}"
    if plan.tag is not None:
        yield f"tag: {plan.tag}"
    change = plan.change
    if change.is_empty:
        yield "nothing has changed: there is nothing to send"
        return
    yield (
        f"files: {len(change.add):,} to send ({console.size(change.n_bytes)}), "
        f"{change.n_same:,} there already, {len(change.delete):,} to remove"
    )
    for path, file in sorted(change.add.items())[:_MOST_FILES]:
        yield f"  {path}  {console.size(file.stat().st_size)}"
    if len(change.add) > _MOST_FILES:
        yield f"  and {len(change.add) - _MOST_FILES:,} more"
