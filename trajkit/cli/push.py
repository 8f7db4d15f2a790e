"""`trajkit push`: stores, or a tuned model, on the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from trajkit.cli import output
from trajkit.cli.jobs import runs_option
from trajkit.cli.push_plan import content_lines, fact_lines, plan_lines
from trajkit.cli.settings import settings_option
from trajkit.cli.training import confirm
from trajkit.errors import DataError, RequestError, ServiceError, StoreError

if TYPE_CHECKING:
    from trajkit.publish.card import CardWish
    from trajkit.publish.hub import Kind
    from trajkit.publish.push import PushPlan
    from trajkit.publish.record import Record
    from trajkit.store.reader import Store


class _Ready(NamedTuple):
    """What is in a folder, ready to be sent."""

    kind: Kind
    record: Record
    splits: Mapping[str, Store]


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
@click.option("--merged", is_flag=True, help="Of a job: the whole model instead of the adapter.")
@click.option("--base", metavar="ORG/NAME", help="What a model started from, as the Hub calls it.")
@click.option("--dataset", metavar="ORG/NAME", help="Where the data of a model was published.")
@click.option(
    "--evaluation",
    type=click.Path(path_type=Path, exists=True),
    help="A folder of `trajkit report`, or its report.json: the table of a model's card.",
)
@runs_option
@click.option("--dry-run", is_flag=True, help="Print the plan, and publish nothing.")
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
    from trajkit.publish.card import CARD, check_wish
    from trajkit.publish.hub import Hub, found_token
    from trajkit.publish.push import plan_push, write_down
    from trajkit.publish.push import push as publish
    from trajkit.publish.remote import checked_name, refuse_writing

    checked_name(repository)
    wish = _wish(repository, asked)
    check_wish(wish)
    if not is_private and wish.license is None:
        raise RequestError(
            "what is public needs a licence, and none is named", hint="--license apache-2.0, or --private"
        )
    token = found_token()
    if token is None and not dry_run:
        raise ServiceError(
            "there is no token for the Hub", hint="HF_TOKEN=..., or `hf auth login`; --dry-run needs none"
        )
    hub = None if token is None else Hub(token)
    if hub is not None:
        refuse_writing(hub.account, repository)  # before anything is made that cannot be sent
    with tempfile.TemporaryDirectory(prefix="trajkit-push-") as name:
        folder = Path(name)
        ready = _ready(what, folder, wish, asked, dry_run=dry_run)
        if hub is None:
            output.talk("dry run: nothing was published, and without a token nobody looked at the Hub")
            return
        paths = [file.path for file in ready.record.files] + [CARD, "trajkit.json"]
        plan = plan_push(
            hub,
            repository,
            ready.kind,
            {path: folder / path for path in paths},
            ready.record,
            is_public=not is_private,
            licence=wish.license,
            tag=tag,
        )
        for line in plan_lines(plan, wish.license):
            output.talk(line)
        if dry_run:
            output.talk("dry run: nothing was published")
            return
        if plan.changes_anything:
            confirm("Publish?", yes=yes, verb="publishes", refused="nothing was published")
        with output.Meter() as meter:
            pushed = publish(hub, plan, say=meter.say)
        try:
            write_down(hub, plan, pushed, ready.splits)
        except StoreError as error:  # a sample cannot be written to: it is published all the same
            output.talk(f"warning: {error.message}")
    if as_json:
        output.result_json(_as_json(plan, pushed.commit, pushed.address, is_new=pushed.is_new))
        return
    done = "commit" if pushed.is_new else "nothing had changed: commit"
    output.result(f"{pushed.address}  {done} {pushed.commit[:12]}{f'  tag {tag}' if tag else ''}")


def _wish(repository: str, asked: Mapping[str, Any]) -> CardWish:
    from trajkit.publish.card import CardWish

    return CardWish(
        repository=repository,
        license=asked["licence"],
        languages=asked["languages"] or ("en",),
        pretty_name=asked["pretty_name"],
        tags=asked["card_tags"],
    )


def _ready(
    what: tuple[str, ...], folder: Path, wish: CardWish, asked: Mapping[str, Any], *, dry_run: bool
) -> _Ready:
    """Make everything that is sent, in a folder, and tell what is known of it."""
    from trajkit.cli.push_model import model_of

    model = model_of(what[0], asked) if len(what) == 1 else None
    if model is not None:
        _refuse_options(asked, ("traces", "allow_findings", "patterns"), "a model")
        from trajkit.publish.model import make_model_contents

        made = make_model_contents(model.folder, folder, wish, model.origin, measured=model.measured)
        return _Ready("model", made.record, {})
    _refuse_options(asked, ("merged", "base", "dataset", "evaluation"), "a store")
    return _ready_stores(what, folder, wish, asked, dry_run=dry_run)


def _ready_stores(
    what: tuple[str, ...], folder: Path, wish: CardWish, asked: Mapping[str, Any], *, dry_run: bool
) -> _Ready:
    from trajkit.publish.card import CARD, dataset_card
    from trajkit.publish.contents import make_contents
    from trajkit.publish.facts import facts_of
    from trajkit.publish.sources import splits_of

    splits = splits_of(what)
    patterns = {name: str(value) for name, value in asked["patterns"].items()}
    facts = facts_of(splits, patterns=patterns)
    for line in fact_lines(facts):
        output.talk(line)
    if facts.n_findings and not asked["allow_findings"] and not dry_run:
        raise DataError(
            f"{output.plural(facts.n_findings, 'secret')} or personal data would be published",
            hint="`trajkit redact STORE -o STORE2` takes them out; --allow-findings publishes them",
        )
    with output.Meter() as meter:
        contents = make_contents(splits, folder, has_traces=asked["traces"], on_progress=meter.show)
    (folder / CARD).write_text(dataset_card(contents, facts, wish), encoding="utf-8")
    for line in content_lines(contents):
        output.talk(line)
    return _Ready("dataset", contents.record, splits)


def _refuse_options(asked: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    for name in names:
        if asked[name]:
            raise RequestError(
                f"--{'pattern' if name == 'patterns' else name.replace('_', '-')} makes no sense with {what}"
            )


def _as_json(plan: PushPlan, commit: str, address: str, *, is_new: bool) -> dict[str, Any]:
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
