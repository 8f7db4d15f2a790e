"""Replace secrets and personal data with placeholders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from trajkit._core.output.console import Cell, Meter, count, plural, size, table_text, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.group import EngineOptions, engine_of, flattened
from trajkit.commands.options.types import Many, Option, Output, Place, Settings, StoreLike, many
from trajkit.commands.place import goal_of, path_or_none, store_path, texts
from trajkit.commands.result import Made

if TYPE_CHECKING:
    from trajkit.curation.redaction.column import RedactReport
    from trajkit.curation.redaction.gate import Opinion


@dataclass(frozen=True)
class Redacted(Result):
    """The redacted store, and what was found."""

    made: Made
    """The new store."""
    report: RedactReport
    """What was found, by kind and place, never a value."""
    gate: Opinion | None
    """What another scanner still finds; None if none was run."""

    @property
    def exit_code(self) -> int:
        """1 if the other scanner still finds something."""
        return int(self.gate is not None and bool(self.gate.n_by_rule))

    def to_json(self) -> dict[str, Any]:
        """The store, its digest, the entry of its lineage, the report and the other scanner's."""
        gate = None if self.gate is None else {"program": self.gate.program, "found": self.gate.n_by_rule}
        return {**self.made.to_json(), "report": self.report.model_dump(mode="json"), "gate": gate}

    def __str__(self) -> str:
        return str(self.made)

    def _repr_html_(self) -> str:
        return self.made._repr_html_()


@flattened()
def redact(
    store: StoreLike | None = None,
    *,
    pattern: Settings | None = None,
    pattern_file: Annotated[Place | None, Option(metavar="FILE")] = None,
    skip: Annotated[Many, Option(is_repeated=True, metavar="KIND")] = (),
    pii: bool = False,
    pii_model: Annotated[str | None, Option(metavar="MODEL")] = None,
    gate: bool = True,
    output: Output = None,
    dry_run: bool = False,
    **engine: Unpack[EngineOptions],
) -> Redacted:
    """Replace secrets and personal data with placeholders like [EMAIL_1].

    The same value gets the same placeholder in the whole store; JSON stays JSON, even inside texts, and a
    number stays a number. The report shows kinds and places, never a value. Redact before `trajkit split`:
    both sides then have the same placeholders.

    It finds keys and tokens of about fifty services by their shapes, private keys (PEM), JWTs, URLs with
    credentials, e-mail addresses, phone numbers, IP addresses and the names in home paths. docs/redact.md
    lists the kinds, and how many the tests find. --pii adds what presidio and a spaCy model find: it
    needs trajkit[pii] and, for names, a model such as that of `python -m spacy download en_core_web_lg`.

    Args:
        store: The store. Default: the last store written here.
        pattern: One more kind, as a regular expression; its group `value`, else its first group, is replaced.
            May be repeated.
        pattern_file: A file of such patterns, one NAME=REGEX per line; a line that begins with # is ignored.
        skip: Leave this kind as it is. May be repeated.
        pii: Also look for names, places and accounts, with presidio: it takes far longer.
        pii_model: The spaCy model that presidio uses, by name or folder; `none` for no names. Turns --pii on.
            Default: en_core_web_lg.
        gate: Scan the new store with betterleaks or gitleaks, if one is on the PATH. Default: --gate.
        output: The store to write.
        dry_run: Print the report and write nothing.

    Raises:
        RequestError: A pattern is invalid, or there is no such kind.
        MissingExtra: `pii` needs trajkit[pii].
        StoreError: The store cannot be read, or `output` exists.

    Example:
        trajkit redact stores/goto -o stores/public --pattern "customer=C-[0-9]{6}"
    """
    from trajkit.curation.redact import redact as redact_store
    from trajkit.curation.redaction.gate import second_opinion
    from trajkit.curation.redaction.pii import MODEL

    goal = None if dry_run else goal_of("redact", output)
    model = pii_model or (MODEL if pii else None)
    with Meter() as meter:
        done = redact_store(
            store_path(store),
            goal,
            patterns=texts(pattern),
            pattern_file=path_or_none(pattern_file),
            skip=many(skip),
            pii=model,
            engine=engine_of(engine, meter.show),
        )
    opinion = second_opinion(goal) if gate and goal is not None else None
    report = done.report
    found = f"found: {count(report.n_found)}" if report.found else "nothing was found"
    talk(f"read: {plural(report.n_texts, 'text')}, {size(report.n_bytes)}; {found}")
    if opinion is not None:
        rules = ", ".join(f"{rule} {count(n)}" for rule, n in sorted(opinion.n_by_rule.items()))
        talk(f"{opinion.program}: {f'it still finds {rules}' if rules else 'nothing found'}")
    return Redacted(
        Made(done.entry, goal, done.manifest, report, head=_table(report)).kept(), report, opinion
    )


def _table(report: RedactReport) -> str:
    if not report.found:
        return ""
    numbers = [Cell("found", is_number=True), Cell("different", is_number=True)]
    return table_text(
        [Cell("kind"), Cell("place"), *numbers],
        [(each.kind, each.place, count(each.n_found), count(each.n_values)) for each in report.found],
    )
