"""`trajkit redact`: take secrets and personal data out of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trajkit._core.console import Cell, count, plural, size, table, talk
from trajkit.cli.settings import settings_option

if TYPE_CHECKING:
    from trajkit.curation.redact_report import RedactReport

_EPILOG = """\
Found are keys and tokens of some fifty services by their shapes, private keys (PEM), JWTs, URLs with
credentials, e-mail addresses, phone numbers, IP addresses and the names in home paths. docs/redact.md lists
the kinds, and how many of them are found. --pii adds what presidio and a spaCy model see: it needs
trajkit[pii] and, for names, a model such as that of `python -m spacy download en_core_web_lg`.

A line of --pattern-file is NAME=REGEX; one that begins with # is passed over.
"""


@click.command(epilog=_EPILOG)
@click.argument("store", required=False)
@settings_option(
    "--pattern",
    "patterns",
    "One more kind, as a regular expression; its group `value`, else its first group, is replaced. May be"
    " repeated.",
)
@click.option(
    "--pattern-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Such patterns, one on a line.",
)
@click.option("--skip", metavar="KIND", multiple=True, help="Leave this kind as it is; may be repeated.")
@click.option(
    "--pii", is_flag=True, help="Look for names, places and accounts too, with presidio: it takes far longer."
)
@click.option(
    "--pii-model",
    metavar="MODEL",
    help="The spaCy model with which presidio reads, by name or folder; `none` for no names. Asks for --pii."
    "  [default: en_core_web_lg]",
)
@click.option("-o", "--output", "goal", type=click.Path(path_type=Path), help="The store to write.")
@click.option("--dry-run", is_flag=True, help="Print what is there and write nothing.")
@click.option(
    "--gate/--no-gate",
    default=True,
    help="Ask betterleaks or gitleaks about the new store, where one is on the PATH.  [default: --gate]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def redact(
    store: str | None,
    patterns: dict[str, str],
    pattern_file: Path | None,
    skip: tuple[str, ...],
    pii: bool,
    pii_model: str | None,
    goal: Path | None,
    dry_run: bool,
    gate: bool,
    as_json: bool,
) -> int:
    """Write STORE without secrets and personal data: each becomes a placeholder such as [EMAIL_1].

    Without STORE, of the last store that was written here. The same value gets the same placeholder in the
    whole store; JSON stays JSON, also inside texts, and a number stays a number. What is printed are kinds
    and places, never a value. Redact before `trajkit split`: both sides then have the same placeholders.

    \b
    trajkit redact stores/goto -o stores/public --pattern "customer=C-[0-9]{6}"
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.cli.derived import print_derived
    from trajkit.commands.checks import patterns_of
    from trajkit.commands.place import goal_of, last_store
    from trajkit.curation.redact import redact as redact_store
    from trajkit.curation.redact_gate import second_opinion
    from trajkit.curation.redact_pii import MODEL

    named = patterns | patterns_of(pattern_file)
    goal = None if dry_run else goal_of("redact", goal)
    model = pii_model or (MODEL if pii else None)
    made = redact_store(store or last_store(talk), goal, patterns=named, skip=skip, pii=model)
    opinion = second_opinion(goal) if gate and goal is not None else None
    if not as_json:
        _print(made.report)
    more = {
        "report": made.report.model_dump(mode="json"),
        "gate": None if opinion is None else {"program": opinion.program, "found": opinion.n_by_rule},
    }
    print_derived(made.entry, made.manifest, goal, as_json=as_json, more=more)
    if opinion is None:
        return 0
    rules = ", ".join(f"{rule} {count(n)}" for rule, n in sorted(opinion.n_by_rule.items()))
    talk(f"{opinion.program}: {f'it still finds {rules}' if rules else 'nothing found'}")
    return 1 if rules else 0


def _print(report: RedactReport) -> None:
    read = f"read: {plural(report.n_texts, 'text')}, {size(report.n_bytes)}"
    if not report.found:
        talk(f"{read}; nothing was found")
        return
    numbers = [Cell("found", is_number=True), Cell("different", is_number=True)]
    table(
        [Cell("kind"), Cell("place"), *numbers],
        [(each.kind, each.place, count(each.n_found), count(each.n_values)) for each in report.found],
    )
    talk(f"{read}; found: {count(report.n_found)}")
