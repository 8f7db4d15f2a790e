"""`trajkit push`: stores, or a tuned model, on the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trajkit._core import console
from trajkit._core.console import confirm
from trajkit.cli.option import runs_option
from trajkit.cli.push_plan import (
    content_lines,
    fact_lines,
    opinion_line,
    plan_lines,
    scanned_lines,
)
from trajkit.cli.settings import settings_option

if TYPE_CHECKING:
    from trajkit.curation.redact_gate import Opinion
    from trajkit.curation.redact_report import RedactReport
    from trajkit.publishing.contents import Contents
    from trajkit.publishing.facts import Facts
    from trajkit.publishing.push import PushPlan


@click.command()
@click.argument("what", metavar="STORE|JOB|MODEL…", nargs=-1, required=True)
@click.argument("repository", metavar="ORG/NAME")
@click.option(
    "--private/--public",
    "is_private",
    default=True,
    show_default=True,
    help="Who sees it. What is public needs a licence, and is private until it was verified.",
)
@click.option("--tag", help="A name for this version, such as v1.")
@click.option("--license", "licence", metavar="ID", help="Such as apache-2.0 or cc-by-4.0.")
@click.option("--language", "languages", multiple=True, metavar="CODE", help="Of the texts.  [default: en]")
@click.option("--pretty-name", metavar="TEXT", help="Title of the card.  [default: the repository's name]")
@click.option("--card-tag", "card_tags", multiple=True, metavar="WORD", help="One more word to find it by.")
@click.option(
    "--traces", is_flag=True, help="Session traces for the Hub's viewer as well, a file per episode."
)
@click.option(
    "--allow-findings", is_flag=True, help="Publish secrets or personal data that the search found."
)
@settings_option("--pattern", "patterns", "A regular expression that must not be published, by name.")
@click.option(
    "--gate/--no-gate",
    default=True,
    help="Ask betterleaks or gitleaks as well, where one is on the PATH.  [default: --gate]",
)
@click.option("--merged", is_flag=True, help="Of a job: the whole model instead of the adapter.")
@click.option("--base", metavar="ORG/NAME", help="What a model started from, as the Hub calls it.")
@click.option("--dataset", metavar="ORG/NAME", help="Where the data of a model was published.")
@click.option(
    "--evaluation",
    type=click.Path(path_type=Path, exists=True),
    help="A folder of `trajkit report`, or its report.json: the table of a model's card.",
)
@runs_option
@click.option("--dry-run", is_flag=True, help="Print the plan and the card, and publish nothing.")
@click.option("--yes", is_flag=True, help="Publish without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def push(
    what: tuple[str, ...],
    repository: str,
    is_private: bool,
    tag: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Publish stores as a dataset of the Hugging Face Hub, or a tuned model.

    \b
    trajkit push stores/goto me/goto --license apache-2.0 --tag v1
    trajkit push stores/split me/goto --public --license apache-2.0
    trajkit push runs/JOB me/goto-lora --base Qwen/Qwen3-0.6B

    A store becomes the configurations sft (rows to train on), episodes, steps and feedback; a folder of
    stores has a split for each. What would be sent is shown first, with what a search for secrets found.
    It is one commit: all of it is there, or nothing. HF_TOKEN, or `hf auth login`, says who you are.
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    from trajkit.commands.push import begun, make, planned, sent
    from trajkit.publishing.card import CARD

    def tell_facts(facts: Facts) -> None:
        for line in fact_lines(facts):
            meter.say(line)

    def tell_scanned(scanned: RedactReport) -> None:
        for line in scanned_lines(scanned):
            meter.say(line)

    def tell_opinion(opinion: Opinion) -> None:
        meter.say(opinion_line(opinion))

    def tell_contents(contents: Contents) -> None:
        for line in content_lines(contents):
            meter.say(line)

    wish, hub = begun(repository, asked, is_private=is_private, dry_run=dry_run)
    with tempfile.TemporaryDirectory(prefix="trajkit-push-") as name:
        folder = Path(name)
        with console.Meter() as meter:
            ready = make(
                what,
                folder,
                wish,
                asked,
                dry_run=dry_run,
                on_facts=tell_facts,
                on_scanned=tell_scanned,
                on_opinion=tell_opinion,
                on_contents=tell_contents,
                on_progress=meter.show,
            )
        plan = planned(hub, repository, folder, ready, wish, is_private=is_private, tag=tag)
        for line in plan_lines(plan, wish.license, is_seen=hub is not None):
            console.talk(line)
        if dry_run or hub is None:
            _show(plan, wish.license, (folder / CARD).read_text(encoding="utf-8"), as_json=as_json)
            asked_hub = "" if hub is not None else ", and without a token nobody looked at the Hub"
            console.talk(f"dry run: nothing was published{asked_hub}")
            return
        if plan.changes_anything:
            confirm("Publish?", yes=yes, verb="publishes", refused="nothing was published")
        with console.Meter() as meter:
            published = sent(hub, plan, ready, say=meter.say)
        if published.warning is not None:
            console.talk(f"warning: {published.warning}")
    pushed = published.pushed
    assert pushed is not None  # it was no dry run
    if as_json:
        console.result_json(_as_json(plan, pushed.commit, pushed.address, is_new=pushed.is_new))
        return
    done = "commit" if pushed.is_new else "nothing had changed: commit"
    console.result(f"{pushed.address}  {done} {pushed.commit[:12]}{f'  tag {tag}' if tag else ''}")


def _show(plan: PushPlan, licence: str | None, card: str, *, as_json: bool) -> None:
    """What a dry run would have published: the card, and as JSON every file as well."""
    if not as_json:
        for line in card.splitlines():
            console.result(line)
        return
    files = {path: file.stat().st_size for path, file in sorted(plan.change.add.items())}
    shown = _as_json(plan, None, None, is_new=plan.changes_anything)
    console.result_json({**shown, "licence": licence, "files": files, "card": card})


def _as_json(plan: PushPlan, commit: str | None, address: str | None, *, is_new: bool) -> dict[str, Any]:
    return {
        "repository": plan.repository,
        "kind": plan.kind,
        "address": address,
        "commit": commit,
        "is_new": is_new,
        "tag": plan.tag,
        "is_public": plan.is_public,
        "digests": {store.split: store.digest for store in plan.record.stores},
        "n_files": len(plan.record.files),
        "n_sent": len(plan.change.add),
    }
