"""Write the card of a dataset on the Hub from its stores; no part of it is typed by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

from trajkit.curation.statistics.text import facts as told_facts
from trajkit.curation.statistics.text import funnel_rows, group_rows
from trajkit.errors import RequestError
from trajkit.publishing.facts import Facts
from trajkit.publishing.files.contents import TRACES, Contents
from trajkit.publishing.files.conversations import MESSAGE_COLUMNS, SFT
from trajkit.publishing.files.tables import all_metrics
from trajkit.publishing.record import PublishedStore
from trajkit.schema import Episode, Feedback, Model, Transition
from trajkit.schema.base import Name, Text
from trajkit.store.layout import CONTENT_HASH, TABLES, columns
from trajkit.store.tally import command_of

CARD = "README.md"
"""Name of the card's file."""

_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_LANGUAGE = re.compile(r"[a-z]{2,3}|code")
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
    (10_000_000_000, "1B<n<10B"),
)
_MOST_GROUPS = 20
_MODELS: dict[str, type[BaseModel]] = {"episodes": Episode, "steps": Transition, "feedback": Feedback}
_DERIVED = {
    "episode_id": "The episode that it belongs to.",
    "function_names": "The functions of its steps, sorted.",
    "variant_names": "The variants of its steps, sorted.",
    "n_steps": "Number of its rows in `steps`.",
    "n_input_tokens": "Sum over its steps; null when a step's is unknown.",
    "n_output_tokens": "Sum over its steps; null when a step's is unknown.",
    "cost_usd": "Sum over its steps; null when a step's is unknown.",
    "content_hash": "Digest of the episode with its steps and its feedback.",
}
_MESSAGES = {
    "messages": "The conversation in the form of chat templates; every assistant message is to be learned.",
    "prompt": "The messages that the model saw, in the form of chat templates; not to be learned.",
    "completion": "The completion to learn.",
}
_SFT = (
    ("tools", "list of json", "The tools that the model could call, as functions of the chat API."),
    (
        "metadata",
        "json",
        "Origin of the row: `episode_id`, `steps` with their `weights`, environment, task, seed, "
        "purpose, outcome, reward, metrics.",
    ),
)


class CardWish(Model):
    """The facts about a dataset or a model that only a person knows."""

    repository: Name
    """Name of the repository, as `owner/name`."""
    license: Text | None = None
    """The Hub's identifier of a licence, such as `apache-2.0`; None when it was not given."""
    languages: tuple[Text, ...] = ("en",)
    """Language codes of ISO 639, such as `en`."""
    pretty_name: Text | None = None
    """Title; None for the repository's name."""
    tags: tuple[Text, ...] = ()
    """Further tags for the Hub's search."""

    @property
    def title(self) -> str:
        """Title: the pretty name, otherwise the repository's name."""
        return self.pretty_name or self.repository.rpartition("/")[2]


def check_wish(wish: CardWish) -> None:
    """Refuse metadata that the Hub would not accept on a card.

    Raises:
        RequestError: A licence, language, tag or title is invalid.
    """
    if wish.license is not None and not _LICENSE.fullmatch(wish.license):
        raise RequestError(
            f"{wish.license!r} is not the identifier of a licence",
            hint="such as apache-2.0, mit, cc-by-4.0; other for one of your own",
        )
    for language in wish.languages:
        if not _LANGUAGE.fullmatch(language):
            raise RequestError(
                f"{language!r} is not a language code", hint="of ISO 639, such as en, de, zh; or code"
            )
    for tag in (*wish.tags, wish.title):
        if not tag.strip() or "\n" in tag:
            raise RequestError(f"{tag!r} cannot be a tag or a title: it must be one line")


def dataset_card(contents: Contents, facts: Facts, wish: CardWish) -> str:
    """Write the card; the same stores and wishes give the same card.

    Args:
        contents: The files.
        facts: The known facts about the stores.
        wish: The facts that a person gave.
    """
    lines = "\n".join(_lines(contents, facts, wish))
    return f"{front_matter(_metadata(contents, facts, wish))}\n{lines}\n"


def _metadata(contents: Contents, facts: Facts, wish: CardWish) -> dict[str, Any]:
    tags = ["trajkit", "agent", *wish.tags]
    if TRACES in contents.configurations:
        tags += ["agent-traces", "format:agent-traces"]
    n_rows = sum(each.n_rows for each in contents.rows) or facts.stats.n_episodes
    default = next(iter(contents.configurations))
    return {
        "license": wish.license or "unknown",
        "language": list(wish.languages),
        "pretty_name": wish.title,
        "tags": list(dict.fromkeys(tags)),
        "task_categories": ["text-generation"],
        "size_categories": [size_category(n_rows)],
        "annotations_creators": ["machine-generated"],
        "configs": [
            {
                "config_name": name,
                **({"default": True} if name == default else {}),
                "data_files": [{"split": split, "path": path} for split, path in patterns.items()],
            }
            for name, patterns in contents.configurations.items()
        ],
    }


def size_category(n_rows: int) -> str:
    """Return the Hub's size category of a number of rows."""
    return next((name for most, name in _SIZES if n_rows < most), "10B<n<100B")


def _lines(contents: Contents, facts: Facts, wish: CardWish) -> Iterator[str]:
    stats = facts.stats
    yield f"# {plain(wish.title)}"
    yield ""
    yield (
        f"{stats.n_episodes:,} episodes of an agent, {stats.n_steps:,} steps, recorded and checked with "
        "[trajkit](https://github.com/trajkit/trajkit). Everything on this page was counted, not typed."
    )
    yield from _section("Configurations", _configurations(contents, wish))
    yield from _section("Splits and leaks", _splits(contents, facts))
    yield from _section("Columns", _columns(contents))
    yield from _section("How it was made", _made(contents, facts))
    yield from _section("Statistics", _statistics(facts))
    yield from _section("Secrets and personal data", _privacy(facts))
    yield from _section("Known limits", _limits(contents, facts, wish))
    yield from _section("Rebuild it", _rebuild(contents, wish))
    yield from _section("Cite it", _cite(contents, wish))


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield from ("", f"## {title}", "")
    yield from lines


def _configurations(contents: Contents, wish: CardWish) -> Iterator[str]:
    columns = ", ".join(f"`{name}`" for name in MESSAGE_COLUMNS[contents.row_format])
    about = {
        SFT: f"rows to train on: {columns}, `tools`, `metadata` (the default)",
        "episodes": "a row per episode: task, seed, outcome, reward, metrics",
        "steps": "a row per step: the new part of the prompt, completion, action, observation and reward",
        "feedback": "a row per piece of feedback",
        TRACES: "session traces, only for the Hub's viewer",
    }
    yield from table(
        ("configuration", "splits", "content"),
        [(f"`{name}`", ", ".join(each), about[name]) for name, each in contents.configurations.items()],
    )
    yield ""
    yield from code(
        "python",
        "from datasets import load_dataset",
        f'rows = load_dataset("{wish.repository}")  # sft',
        f'steps = load_dataset("{wish.repository}", "steps", streaming=True)',
    )
    if TRACES in contents.configurations:
        yield ""
        yield (
            "`traces` is not for `load_dataset`: `datasets` 5.2 reads such files as those of another tool, "
            "drops the tool calls and invents tools."
        )


def _splits(contents: Contents, facts: Facts) -> Iterator[str]:
    rows = {each.split: each for each in contents.rows}
    yield from table(
        ("split", "episodes", "steps", "rows to train on", "digest"),
        [
            (
                f"`{store.split}`",
                f"{store.counts.n_episodes:,}",
                f"{store.counts.n_steps:,}",
                f"{rows[store.split].n_rows:,}",
                f"`{store.digest}`",
            )
            for store in contents.record.stores
        ],
    )
    for each in facts.compared:
        other = "the worlds reserved for evaluation" if each.evaluation is None else f"`{each.evaluation}`"
        verdict = (
            "**There is a leak: they share data that evaluation must not share with training.**"
            if each.leaks
            else "No leak was found."
        )
        yield from ("", f"`{each.train}` was compared with {other}. {verdict}", "")
        yield from (f"- {plain(line)}" for line in each.lines)
    if not facts.compared:
        yield from ("", "There is one split, so no splits were compared.")
    for replay in facts.replayed:
        yield from (
            "",
            f"`{replay.split}` was replayed from its seeds: {replay.n_verified:,} of {replay.n_episodes:,} "
            f"episodes matched the environment exactly, {replay.n_different:,} differed.",
        )
    if not facts.replayed:
        yield from ("", "No split has a record of a replay from its seeds (`trajkit replay`).")


def _columns(contents: Contents) -> Iterator[str]:
    for name in contents.configurations:
        rows = list(column_rows(name, contents.record.stores, contents.row_format))
        if rows:
            yield from (f"### `{name}`", "")
            yield from table(("column", "type", "meaning"), rows)
            yield ""
    yield "Null means unknown, never zero. Times are UTC. `json` is any JSON value."


def _made(contents: Contents, facts: Facts) -> Iterator[str]:
    for store in contents.record.stores:
        yield from (f"`{store.split}`:", "")
        commands = [command_of(entry) for entry in store.lineage]
        yield from code("sh", *(commands or [f"# made by {store.kind}, without recorded commands"]))
        yield ""
    headings, rows = funnel_rows(facts.stats)
    yield from table(headings, rows)


def _statistics(facts: Facts) -> Iterator[str]:
    stats = facts.stats
    shown = [group for group in stats.groups if group.by in ("all", "task", "variant")][:_MOST_GROUPS]
    yield from table(*group_rows(stats, shown))
    yield from (
        "",
        f"Intervals of {stats.confidence:.0%}: shares Wilson's, means {plain(stats.interval)}.",
        "",
    )
    yield from table(("", ""), [(name, text) for name, text in told_facts(stats)])


def _privacy(facts: Facts) -> Iterator[str]:
    for done in facts.redacted:
        found = done.get("found")
        kinds = found if isinstance(found, dict) else {}
        numbers = ", ".join(f"{number} {plain(str(kind))}" for kind, number in kinds.items())
        yield f"- `{done['split']}` was redacted: {numbers or 'nothing was found'}."
    for each in facts.scanned:
        n_texts = each.report.n_texts
        if not each.report.n_found:
            yield f"- `{each.split}`: {n_texts:,} texts were searched, and nothing was found."
            continue
        yield f"- `{each.split}`: {n_texts:,} texts were searched, and these findings were published:"
        yield from (f"  - {found.n_found:,} {found.kind} in {found.place}" for found in each.report.found)
    yield from (
        "",
        "The search recognises patterns of keys, addresses and numbers. It does not find names of people.",
    )


def _limits(contents: Contents, facts: Facts, wish: CardWish) -> Iterator[str]:
    if wish.license is None:
        yield "- **Licence: unknown.** It was not given when the dataset was published."
    for rows in contents.rows:
        for reason, number in rows.left.items():
            yield f"- `{rows.split}`: {number:,} steps are in no row of `{SFT}`: {plain(reason)}."
        for kind, number in rows.losses.items():
            yield f"- `{rows.split}`: the rows of `{SFT}` cannot carry {number:,} {plain(kind)}."
        if rows.n_evaluation_left:
            yield (
                f"- `{rows.split}`: {rows.n_evaluation_left:,} evaluation episodes are in no row of `{SFT}`; "
                "the other configurations have them."
            )
    for moved in contents.record.moved:
        what = "rows, whole," if moved.table == SFT else "values"
        yield (
            f"- {moved.n_values:,} {what} of `{moved.table}` are too wide for the viewer (2 MB a row) and "
            "are in `moved/`; `trajkit pull` puts values back in their place."
        )
    unjudged = sum(group.n_unjudged for group in facts.stats.groups if group.by == "all")
    if unjudged:
        yield f"- {unjudged:,} episodes have no outcome and are not counted in shares of successes."
    yield "- `steps` has only the part of a prompt that the previous step lacks; `sft` has whole prompts."
    yield "- Intervals treat episodes as independent: with several attempts at one seed they are too narrow."


def _rebuild(contents: Contents, wish: CardWish) -> Iterator[str]:
    yield "The stores with exactly the same content (the digests above are checked):"
    yield ""
    yield from code("sh", f"trajkit pull {wish.repository} -o data")
    yield ""
    yield "To make it again from its source, run the commands above with that version of trajkit:"
    yield ""
    for store in contents.record.stores:
        versions = sorted({entry.trajkit_version for entry in store.lineage})
        yield f"- `{store.split}`: trajkit {', '.join(versions) or 'of an unknown version'}"


def _cite(contents: Contents, wish: CardWish) -> Iterator[str]:
    key = re.sub(r"[^A-Za-z0-9]+", "-", wish.repository).strip("-")
    done = [entry.done_at.year for store in contents.record.stores for entry in store.lineage]
    yield from code(
        "bibtex",
        f"@misc{{{key},",
        f"  title = {{{tex(wish.title)}}},",
        f"  author = {{{tex(wish.repository.partition('/')[0])}}},",
        *([f"  year = {{{max(done)}}},"] if done else []),
        f"  note = {{digest {contents.record.stores[0].digest[:16]}}},",
        f"  howpublished = {{Hugging Face Hub, {tex(wish.repository)}}}",
        "}",
    )


def column_rows(
    configuration: str, stores: Sequence[PublishedStore], form: str
) -> Iterator[tuple[str, str, str]]:
    """Return name, type and meaning of each column of a configuration; nothing for one that is not a table.

    Args:
        configuration: Name of the configuration.
        stores: The published stores.
        form: Format of the training rows.
    """
    if configuration == SFT:
        yield from ((f"`{name}`", "list", _MESSAGES[name]) for name in MESSAGE_COLUMNS[form])
        yield from ((f"`{name}`", kind, meaning) for name, kind, meaning in _SFT)
    if configuration not in TABLES:
        return
    extra = (CONTENT_HASH,) if configuration == "episodes" else ()
    for column in (*columns(configuration, all_metrics(stores)), *extra):
        kind = "struct of metrics" if column.name == "metrics" else column.sql_type.lower()
        yield f"`{column.name}`", kind, _meaning(configuration, column.name)


def _meaning(configuration: str, name: str) -> str:
    field = _MODELS[configuration].model_fields.get(name)
    text = None if field is None else field.description
    return " ".join((text or _DERIVED.get(name, "")).split())


def front_matter(fields: Mapping[str, Any]) -> str:
    """Return the metadata at the top of a card; fields that are None are left out."""
    known = {name: value for name, value in fields.items() if value is not None}
    return f"---\n{yaml.safe_dump(known, sort_keys=False, allow_unicode=True, width=1000)}---\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a Markdown table."""
    yield f"| {' | '.join(plain(heading) for heading in headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(plain(cell, keeps_code=True) for cell in row)} |"


def plain(text: str, *, keeps_code: bool = False) -> str:
    """Escape a text so that it stays in its line and cell and is not markup."""
    shown = "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|").replace("<", "&lt;")
    return shown if keeps_code else shown.replace("`", "'")


def code(language: str, *lines: str) -> Iterator[str]:
    """Return the lines of a code block; no line can end the block early."""
    yield f"```{language}"
    yield from (line.replace("```", "'''") for line in lines)
    yield "```"


def tex(text: str) -> str:
    """Escape a text for a field of BibTeX."""
    return re.sub(r"([_&%#{}$])", r"\\\1", plain(text))
