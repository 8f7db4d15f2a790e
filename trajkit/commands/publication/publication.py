"""What `trajkit push` sends, made in a folder: of stores, or of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from trajkit.commands.play.local_model import job_of, model_folder
from trajkit.commands.publication.plan import content_lines, fact_lines, opinion_line, scanned_lines
from trajkit.errors import DataError, RequestError

if TYPE_CHECKING:
    from trajkit.curation.redaction.gate import Opinion
    from trajkit.publishing.card import CardWish
    from trajkit.publishing.facts import Facts
    from trajkit.publishing.hub import Kind
    from trajkit.publishing.model import Measured, Origin
    from trajkit.publishing.record import Record
    from trajkit.store.reader import Store

Progress = Callable[[str, int, int | None], None]


class Ready(NamedTuple):
    """Everything that is sent, made in a folder."""

    kind: Kind
    """`dataset` or `model`."""
    record: Record
    """What the commit says of itself."""
    splits: Mapping[str, Store]
    """The stores by split; none of a model."""
    facts: Facts | None = None
    """What is known of the stores: leaks, replays, secrets; None of a model."""


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
        has_gate: Whether another scanner is asked as well, where one is on the PATH.
        may_find: Whether findings are no error.
        say: Told what is found.
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
        """Tell the opinions, and raise where the search or another scanner found something.

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
                hint="`trajkit redact STORE -o STORE2` takes them out of texts; a name has to be another one;"
                " --allow-findings publishes them",
            )
        if n_theirs:
            raise DataError(
                f"{program} finds {n_theirs:,} more that would be published",
                hint="`trajkit redact --pattern` takes out what you name; --allow-findings publishes them",
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
    """Make everything that is sent, and tell what is known of it.

    Args:
        what: Stores, or a model.
        folder: Where it is made.
        wish: What the card is to say.
        search: Looks for secrets, and tells what is known.
        runs: The folder where jobs are kept.
        of_model: The options of a model.
        has_traces: Whether session traces are published with stores.
        on_progress: Told how far it is.

    Raises:
        RequestError: An option makes no sense with what is published.
        DataError: The search found secrets.
    """
    model = _model(what[0], runs, of_model) if len(what) == 1 else None
    if model is not None:
        if has_traces:
            raise RequestError("--traces makes no sense with a model")
        return _make_model(model, folder, wish, search)
    for name, value in of_model._asdict().items():
        if value:
            raise RequestError(f"--{name} makes no sense with a store")
    return _make_dataset(what, folder, wish, search, has_traces=has_traces, on_progress=on_progress)


def _make_model(model: _Model, folder: Path, wish: CardWish, search: Search) -> Ready:
    from trajkit.publishing.card import CARD
    from trajkit.publishing.model import make_model_contents

    made = make_model_contents(
        model.folder, folder, wish, model.origin, measured=model.measured, patterns=search.patterns
    )
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
    # names, what the record tells of the store's past, and the card are in no column of a store
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


class _Model(NamedTuple):
    folder: Path
    """Has the adapter, or the model."""
    origin: Origin
    """What it was made of."""
    measured: Measured | None
    """What an evaluation says."""


def _model(name: str, runs_folder: Path, options: ModelOptions) -> _Model | None:
    """The model of this name: a job's, or a folder with one; None where it is none, and so a store.

    Raises:
        RequestError: The job has no model on this machine.
        DataError: The report of the evaluation is none.
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
        return _Model(folder, origin, _measured(options.evaluation))
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
    return _Model(folder, origin, _measured(options.evaluation))


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
            f"{file} is no report: {str(error).splitlines()[0]}", hint="trajkit report STORE… -o REPORT"
        ) from error
    table = group_table(report)
    return Measured(headings=table.headings, rows=tuple(table.rows), said=said_of(report))
