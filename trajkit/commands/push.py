"""Publish stores as a dataset of the Hugging Face Hub, or a tuned model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from trajkit._core.address import is_address
from trajkit._core.output import console
from trajkit._core.output.console import Meter, talk
from trajkit._core.output.result import Result
from trajkit.commands.options.types import Many, Option, Place, RunsFolder, Settings, StoreLike, many
from trajkit.commands.place import path_or_none, store_paths, texts
from trajkit.errors import RequestError, ServiceError, StoreError

if TYPE_CHECKING:
    from trajkit.commands.publication.publication import Ready
    from trajkit.publishing.card import CardWish
    from trajkit.publishing.facts import Facts
    from trajkit.publishing.hub import Hub
    from trajkit.publishing.push import Pushed as OnHub
    from trajkit.publishing.push import PushPlan


@dataclass(frozen=True)
class Published(Result):
    """What is on the Hub now; after a dry run only what would be."""

    facts: Facts | None
    """What is known about the stores: leaks, replays, secrets; None for a model."""
    plan: PushPlan
    """Which files were sent, and to whom; all files if a dry run has no token for the Hub."""
    pushed: OnHub | None = None
    """The commit and its address; None after a dry run."""
    warning: str | None = None
    """Why it could not be recorded in the store; None if it was."""
    licence: str | None = None
    """The licence that was named."""
    card: str = ""
    """The card, in Markdown."""
    n_bytes_by_file: Mapping[str, int] = field(default_factory=dict)
    """Size of every file that was, or would be, sent."""

    def to_json(self) -> dict[str, Any]:
        """What was published; after a dry run also the card and every file."""
        plan, pushed = self.plan, self.pushed
        shown = {
            "repository": plan.repository,
            "kind": plan.kind,
            "address": None if pushed is None else pushed.address,
            "commit": None if pushed is None else pushed.commit,
            "is_new": plan.changes_anything if pushed is None else pushed.is_new,
            "tag": plan.tag,
            "is_public": plan.is_public,
            "digests": {store.split: store.digest for store in plan.record.stores},
            "n_files": len(plan.record.files),
            "n_sent": len(plan.change.add),
        }
        if pushed is not None:
            return shown
        return {**shown, "licence": self.licence, "files": dict(self.n_bytes_by_file), "card": self.card}

    def __str__(self) -> str:
        if self.pushed is None:
            return "\n".join(map(console.line, self.card.splitlines()))
        done = "commit" if self.pushed.is_new else "nothing had changed: commit"
        tag = f"  tag {self.plan.tag}" if self.plan.tag else ""
        return console.line(f"{self.pushed.address}  {done} {self.pushed.commit[:12]}{tag}")


def push(
    what: Annotated[StoreLike | Iterable[StoreLike], Option(is_repeated=True, metavar="STORE|JOB|MODEL…")],
    repository: Annotated[str, Option(metavar="ORG/NAME")],
    *,
    private: Annotated[bool, Option(negative="--public")] = True,
    tag: str | None = None,
    license: Annotated[str | None, Option(metavar="ID")] = None,
    language: Annotated[Many, Option(metavar="CODE")] = (),
    pretty_name: str | None = None,
    card_tag: Annotated[Many, Option(metavar="WORD")] = (),
    traces: bool = False,
    allow_findings: bool = False,
    pattern: Settings | None = None,
    gate: bool = True,
    merged: bool = False,
    base: Annotated[str | None, Option(metavar="ORG/NAME")] = None,
    dataset: Annotated[str | None, Option(metavar="ORG/NAME")] = None,
    evaluation: Annotated[Place | None, Option(metavar="PATH")] = None,
    runs: RunsFolder = "runs",
    dry_run: bool = False,
    yes: bool = False,
) -> Published:
    """Publish stores as a dataset of the Hugging Face Hub, or a tuned model.

    A store becomes the configurations sft (rows to train on), episodes, steps and feedback; a folder of
    stores has a split for each. The plan is shown first, with what a search for secrets found. All of it is
    one commit: the Hub gets everything, or nothing. HF_TOKEN, or `hf auth login`, identifies you.

    Args:
        what: Stores, a folder of stores, or a model: the name of a job, or a folder.
        repository: The dataset or the model on the Hub.
        private: Who can see it. A public repository needs a licence, and stays private until it is verified.
        tag: A name for this version, such as v1.
        license: The licence, such as apache-2.0 or cc-by-4.0.
        language: Language of the texts; may be repeated. Default: en.
        pretty_name: Title of the card. Default: the name of the repository.
        card_tag: A further tag of the card; may be repeated.
        traces: Also publish session traces for the Hub's viewer, one file per episode.
        allow_findings: Publish secrets or personal data that the search found.
        pattern: A regular expression that must not be published, by name; may be repeated.
        gate: Also run betterleaks or gitleaks, if one is on the PATH.
        merged: For a job: publish the whole model instead of the adapter.
        base: The model that a model was tuned from, by its name on the Hub.
        dataset: The published dataset that a model was tuned on.
        evaluation: A folder of `trajkit report`, or its report.json: the table of a model's card.
        runs: The folder where jobs are kept.
        dry_run: Print the plan and the card, and publish nothing.
        yes: Publish without asking.

    Raises:
        RequestError: Options do not go together, or `yes` is not given and no question can be asked.
        DataError: The search found secrets.
        ServiceError: There is no token, or the Hub refused.

    Example:
        trajkit push stores/goto me/goto --license apache-2.0 --tag v1
        trajkit push stores/split me/goto --public --license apache-2.0
        trajkit push runs/JOB me/goto-lora --base Qwen/Qwen3-0.6B
    """
    from trajkit.commands.publication.publication import ModelOptions, Search, make, plan_lines
    from trajkit.publishing.card import CARD, CardWish

    wish = CardWish(
        repository=repository,
        license=license,
        languages=many(language) or ("en",),
        pretty_name=pretty_name,
        tags=many(card_tag),
    )
    places = store_paths(what)
    for place in filter(is_address, places):
        raise RequestError(f"{place} is an address, and push reads local files", hint="copy it first")
    of_model = ModelOptions(merged, base, dataset, path_or_none(evaluation))
    hub = _checked_hub(wish, is_public=not private, dry_run=dry_run)
    with tempfile.TemporaryDirectory(prefix="trajkit-push-") as name:
        folder = Path(name)
        with Meter() as meter:
            search = Search(texts(pattern), has_gate=gate, may_find=allow_findings or dry_run, say=meter.say)
            ready = make(
                places,
                folder,
                wish,
                search,
                runs=Path(runs),
                of_model=of_model,
                has_traces=traces,
                on_progress=meter.show,
            )
        plan = _plan(hub, ready, folder, wish, is_public=not private, tag=tag)
        for line in plan_lines(plan, license, is_seen=hub is not None):
            talk(line)
        published = Published(
            ready.facts,
            plan,
            licence=license,
            card=(folder / CARD).read_text(encoding="utf-8"),
            n_bytes_by_file={path: file.stat().st_size for path, file in sorted(plan.change.add.items())},
        )
        if dry_run or hub is None:
            talk(
                "dry run: nothing was published"
                + ("" if hub is not None else ", and without a token the Hub was not called")
            )
            return published
        if plan.changes_anything:
            console.confirm("Publish?", yes=yes, verb="publishes", refused="nothing was published")
        return _sent(hub, published, ready)


def _checked_hub(wish: CardWish, *, is_public: bool, dry_run: bool) -> Hub | None:
    """The Hub; None for a dry run without a token. What cannot be published is refused before it is made.

    Raises:
        RequestError: The name or the licence is invalid.
        ServiceError: There is no token, or it may not write there.
    """
    from trajkit.publishing.card import check_wish
    from trajkit.publishing.hub import Hub, checked_name, found_token, refuse_writing

    checked_name(wish.repository)
    check_wish(wish)
    if is_public and wish.license is None:
        raise RequestError(
            "a public repository needs a licence, and none is named",
            hint="--license apache-2.0, or --private",
        )
    token = found_token()
    if token is None:
        if dry_run:
            return None
        raise ServiceError(
            "there is no token for the Hub", hint="HF_TOKEN=..., or `hf auth login`; --dry-run needs none"
        )
    hub = Hub(token)
    refuse_writing(hub.account, wish.repository)
    return hub


def _plan(
    hub: Hub | None, ready: Ready, folder: Path, wish: CardWish, *, is_public: bool, tag: str | None
) -> PushPlan:
    """Which of the files would be sent, and to whom; without a Hub to look at, all of them."""
    from trajkit.publishing.card import CARD
    from trajkit.publishing.push import PushPlan, change_of, plan_push
    from trajkit.publishing.record import RECORD

    paths = [file.path for file in ready.record.files] + [CARD, RECORD]
    files = {path: folder / path for path in paths}
    if hub is None:
        change = change_of(None, files, frozenset())
        return PushPlan(wish.repository, ready.kind, ready.record, None, change, is_public, tag)
    return plan_push(
        hub,
        wish.repository,
        ready.kind,
        files,
        ready.record,
        is_public=is_public,
        licence=wish.license,
        tag=tag,
    )


def _sent(hub: Hub, planned: Published, ready: Ready) -> Published:
    """Send it, and record in the stores where it is."""
    from trajkit.publishing.push import push as publish
    from trajkit.publishing.push import write_down

    with Meter() as meter:
        pushed = publish(hub, planned.plan, say=meter.say)
        try:
            write_down(hub, planned.plan, pushed, ready.splits)
        except StoreError as error:  # a sample cannot be written to: it is published all the same
            meter.say(f"warning: {error.message}")
            return replace(planned, pushed=pushed, warning=error.message)
    return replace(planned, pushed=pushed)
