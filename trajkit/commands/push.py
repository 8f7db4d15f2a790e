"""Publish stores, or a tuned model, on the Hugging Face Hub."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trajkit.commands.place import Many, Place, Settings, StoreLike, many, texts
from trajkit.errors import DataError, RequestError, ServiceError, StoreError

if TYPE_CHECKING:
    from trajkit.curation.redact_gate import Opinion
    from trajkit.curation.redact_report import RedactReport
    from trajkit.publishing.card import CardWish
    from trajkit.publishing.contents import Contents
    from trajkit.publishing.facts import Facts
    from trajkit.publishing.hub import Hub, Kind
    from trajkit.publishing.push import Pushed as OnHub
    from trajkit.publishing.push import PushPlan
    from trajkit.publishing.record import Record
    from trajkit.store.reader import Store

_MODEL_OPTIONS = ("merged", "base", "dataset", "evaluation")
_STORE_OPTIONS = ("traces",)


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


class Published(NamedTuple):
    """What is on the Hub now; after a dry run only what would be."""

    facts: Facts | None
    """What is known of the stores: leaks, replays, secrets; None of a model."""
    plan: PushPlan
    """Which files were sent, to whom; all of them where a dry run has no token to look at the Hub with."""
    pushed: OnHub | None
    """The commit and its address; None after a dry run."""
    warning: str | None = None
    """Why it could not be written down in the store; None where it was."""


def push(
    what: StoreLike | Iterable[StoreLike],
    repository: str,
    *,
    private: bool = True,
    tag: str | None = None,
    license: str | None = None,
    language: Many = (),
    pretty_name: str | None = None,
    card_tag: Many = (),
    traces: bool = False,
    allow_findings: bool = False,
    pattern: Settings | None = None,
    gate: bool = True,
    merged: bool = False,
    base: str | None = None,
    dataset: str | None = None,
    evaluation: Place | None = None,
    runs: Place = "runs",
    dry_run: bool = False,
    yes: bool = False,
) -> Published:
    """Publish stores as a dataset of the Hugging Face Hub, or a tuned model, in one commit.

    Args:
        what: Stores, a folder of stores, or a model: a job's name or folder.
        repository: `org/name`.
        private: Who sees it. What is public needs a licence, and is private until it was verified.
        tag: A name for this version, such as v1.
        license: Such as apache-2.0.
        language: Of the texts; none for en.
        pretty_name: Title of the card; None for the repository's name.
        card_tag: More words to find it by.
        traces: Session traces for the Hub's viewer as well.
        allow_findings: Publish secrets or personal data that the search found.
        pattern: Regular expressions that must not be published, by name.
        gate: Ask betterleaks or gitleaks as well, where one is on the PATH.
        merged: Of a job: the whole model instead of the adapter.
        base: What a model started from, as the Hub calls it.
        dataset: Where the data of a model was published.
        evaluation: A folder of a report, or its report.json: the table of a model's card.
        runs: The folder where jobs are kept.
        dry_run: Publish nothing, and say what would be.
        yes: Publish.

    Raises:
        RequestError: Options do not go together, or `yes` is not given.
        DataError: The search found secrets.
        ServiceError: There is no token, or the Hub refused.
    """
    from trajkit.commands.place import store_paths

    asked = {
        "licence": license,
        "languages": many(language),
        "pretty_name": pretty_name,
        "card_tags": many(card_tag),
        "traces": traces,
        "allow_findings": allow_findings,
        "patterns": texts(pattern),
        "gate": gate,
        "merged": merged,
        "base": base,
        "dataset": dataset,
        "evaluation": None if evaluation is None else Path(evaluation),
        "runs_folder": Path(runs),
    }
    paths = tuple(store_paths(what))
    wish, hub = begun(repository, asked, is_private=private, dry_run=dry_run)
    with tempfile.TemporaryDirectory(prefix="trajkit-push-") as name:
        ready = make(paths, Path(name), wish, asked, dry_run=dry_run)
        plan = planned(hub, repository, Path(name), ready, wish, is_private=private, tag=tag)
        if dry_run:
            return Published(ready.facts, plan, None)
        if plan.changes_anything and not yes:
            raise RequestError(
                f"this publishes {', '.join(paths)} as {repository}",
                hint="--yes publishes, --dry-run shows the plan alone",
            )
        assert hub is not None  # only a dry run goes without a token
        return sent(hub, plan, ready)


class Begun(NamedTuple):
    """A publication that can begin."""

    wish: CardWish
    """What the card is to say."""
    hub: Hub | None
    """The Hub; None for a dry run without a token."""


def begun(repository: str, asked: Mapping[str, Any], *, is_private: bool, dry_run: bool) -> Begun:
    """Refuse what cannot be published, before anything is made.

    Raises:
        RequestError: The name or the licence will not do.
        ServiceError: There is no token, or it may not write there.
    """
    from trajkit.publishing.card import check_wish
    from trajkit.publishing.hub import Hub, found_token
    from trajkit.publishing.remote import checked_name, refuse_writing

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
    return Begun(wish, hub)


def _wish(repository: str, asked: Mapping[str, Any]) -> CardWish:
    from trajkit.publishing.card import CardWish

    return CardWish(
        repository=repository,
        license=asked["licence"],
        languages=asked["languages"] or ("en",),
        pretty_name=asked["pretty_name"],
        tags=asked["card_tags"],
    )


def make(
    what: tuple[str, ...],
    folder: Path,
    wish: CardWish,
    asked: Mapping[str, Any],
    *,
    dry_run: bool,
    on_facts: Callable[[Facts], object] = lambda facts: None,
    on_scanned: Callable[[RedactReport], object] = lambda scanned: None,
    on_opinion: Callable[[Opinion], object] = lambda opinion: None,
    on_contents: Callable[[Contents], object] = lambda contents: None,
    on_progress: Callable[[str, int, int | None], None] = lambda what, n_done, n_total: None,
) -> Ready:
    """Make everything that is sent, in a folder, and tell what is known of it.

    Args:
        what: Stores, or a model.
        folder: Where it is made.
        wish: What the card is to say.
        asked: The options.
        dry_run: Go on although the search found secrets.
        on_facts: Told what is known of the stores.
        on_scanned: Told what a search of the files themselves found, of a model or beside the stores' texts.
        on_opinion: Told what another scanner says, where one was asked.
        on_contents: Told what was made.
        on_progress: Told how far it is.

    Raises:
        RequestError: An option makes no sense with what is published.
        DataError: The search found secrets.
    """
    from trajkit.commands.push_model import model_of

    model = model_of(what[0], asked) if len(what) == 1 else None
    if model is not None:
        from trajkit.curation.redact_gate import opinion_of
        from trajkit.publishing.card import CARD
        from trajkit.publishing.file_scan import file_texts
        from trajkit.publishing.model import make_model_contents

        _refuse(asked, _STORE_OPTIONS, "a model")
        made = make_model_contents(
            model.folder, folder, wish, model.origin, measured=model.measured, patterns=_patterns(asked)
        )
        on_scanned(made.scanned)
        names = [*(file.path for file in made.record.files), CARD]
        opinion = opinion_of(file_texts(folder, names)) if asked["gate"] else None
        _refuse_findings(made.scanned.n_found, [opinion], asked, on_opinion, dry_run=dry_run)
        return Ready("model", made.record, {})
    _refuse(asked, _MODEL_OPTIONS, "a store")
    from trajkit.curation.redact_gate import opinion_of, second_opinion
    from trajkit.publishing.card import CARD, dataset_card
    from trajkit.publishing.contents import make_contents
    from trajkit.publishing.facts import Scanned, facts_of
    from trajkit.publishing.file_scan import file_texts, scan_files
    from trajkit.publishing.record import RECORD
    from trajkit.publishing.sources import splits_of

    splits = splits_of(what)
    facts = facts_of(splits, patterns=_patterns(asked))
    on_facts(facts)
    opinions = [second_opinion(store.path) for store in splits.values()] if asked["gate"] else []
    _refuse_findings(facts.n_findings, opinions, asked, on_opinion, dry_run=dry_run)
    contents = make_contents(splits, folder, has_traces=asked["traces"], on_progress=on_progress)
    (folder / CARD).write_text(dataset_card(contents, facts, wish), encoding="utf-8")
    # what no column of a store has: names, what the record tells of the store's past, the card
    names = [*(file.path for file in contents.record.files), CARD, RECORD]
    scanned = scan_files(folder, names, patterns=_patterns(asked))
    if scanned.n_found:
        on_scanned(scanned)
        more = Scanned(split="names and files", report=scanned)
        facts = facts.model_copy(update={"scanned": (*facts.scanned, more)})
        (folder / CARD).write_text(dataset_card(contents, facts, wish), encoding="utf-8")
    opinion = opinion_of(file_texts(folder, names)) if asked["gate"] else None
    _refuse_findings(scanned.n_found, [opinion], asked, on_opinion, dry_run=dry_run)
    on_contents(contents)
    return Ready("dataset", contents.record, splits, facts)


def _patterns(asked: Mapping[str, Any]) -> dict[str, str]:
    from trajkit.publishing.file_scan import with_environment

    return with_environment({name: str(value) for name, value in asked["patterns"].items()})


def _refuse_findings(
    n_found: int,
    opinions: Iterable[Opinion | None],
    asked: Mapping[str, Any],
    on_opinion: Callable[[Opinion], object],
    *,
    dry_run: bool,
) -> None:
    """Raise where the search, or another scanner, found what nobody should read.

    Raises:
        DataError: It did, and nobody said that it may be published.
    """
    n_theirs, program = 0, ""
    for opinion in opinions:
        if opinion is not None:
            on_opinion(opinion)
            n_theirs, program = n_theirs + sum(opinion.n_by_rule.values()), opinion.program
    if asked["allow_findings"] or dry_run:
        return
    hint = "`trajkit redact STORE -o STORE2` takes them out of texts; a name has to be another one;"
    hint += " --allow-findings publishes them"
    if n_found:
        raise DataError(
            f"{n_found:,} {'secret' if n_found == 1 else 'secrets'} or personal data would be published",
            hint=hint,
        )
    if n_theirs:
        raise DataError(
            f"{program} finds {n_theirs:,} more that would be published",
            hint="`trajkit redact --pattern` takes out what you name; --allow-findings publishes them",
        )


def _refuse(asked: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    for name in names:
        if asked[name]:
            raise RequestError(
                f"--{'pattern' if name == 'patterns' else name.replace('_', '-')} makes no sense with {what}"
            )


def planned(
    hub: Hub | None,
    repository: str,
    folder: Path,
    ready: Ready,
    wish: CardWish,
    *,
    is_private: bool,
    tag: str | None,
) -> PushPlan:
    """Which of the files would be sent, and to whom; without a Hub to look at, all of them."""
    from trajkit.publishing.card import CARD
    from trajkit.publishing.push import PushPlan, plan_push
    from trajkit.publishing.upload import change_of

    paths = [file.path for file in ready.record.files] + [CARD, "trajkit.json"]
    files = {path: folder / path for path in paths}
    if hub is None:
        change = change_of(None, files, frozenset())
        return PushPlan(repository, ready.kind, ready.record, None, change, not is_private, tag)
    return plan_push(
        hub,
        repository,
        ready.kind,
        files,
        ready.record,
        is_public=not is_private,
        licence=wish.license,
        tag=tag,
    )


def sent(hub: Hub, plan: PushPlan, ready: Ready, say: Callable[[str], None] = lambda text: None) -> Published:
    """Send it, and write down in the stores where it is."""
    from trajkit.publishing.push import push as publish
    from trajkit.publishing.push import write_down

    pushed = publish(hub, plan, say=say)
    warning = None
    try:
        write_down(hub, plan, pushed, ready.splits)
    except StoreError as error:  # a sample cannot be written to: it is published all the same
        warning = error.message
    return Published(ready.facts, plan, pushed, warning)
