"""Measure a store for a first look: its content, its problems, and three of its episodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from trajkit.curation.derive import reading
from trajkit.curation.inspect.model import Example, Repeated, Secret, Size, Trainable
from trajkit.curation.redact import scan
from trajkit.curation.redaction.column import Search
from trajkit.curation.redaction.text import Finder, Placeholders
from trajkit.curation.statistics.read import TOTAL_REWARD, read
from trajkit.curation.statistics.stats import duplicates, weights
from trajkit.environments.guard import RETURN_NAME
from trajkit.schema import Episode, MetricLevel, TextBlock, ToolCallBlock, ToolResultBlock
from trajkit.store.dataset import open_dataset
from trajkit.store.engine import connect, one_row
from trajkit.store.reader import open_store
from trajkit.store.summary import MetricSummary, Summary, summarize

BYTES_PER_TOKEN = 4
"""For the estimate: English text has about four bytes per token."""
_USUAL_SCORES = (RETURN_NAME, "score", "reward", TOTAL_REWARD)
_SHOWN_CHARACTERS = 240
_COPIES = ("steps.observation", "steps.action", "steps.action_executed", "steps.input")
"""Columns whose texts are also in the messages; secrets that are only in them count."""
_TEXT_BYTES = " + ".join(
    f"coalesce(list_sum(list_transform(json_extract_string({column}.{field}'), lambda x: strlen(x))), 0)"
    for column in ("messages, '$[*].content[*]", "completion, '$.content[*]")
    for field in ("text", "arguments", "result")
)


class Measured(NamedTuple):
    """Facts about a store."""

    size: Size
    trainable: Trainable
    repeated: Repeated
    secrets: tuple[Secret, ...]
    metrics: tuple[MetricSummary, ...]
    outcomes: dict[str, int]
    n_steps_errored: int
    score: str | None
    examples: tuple[Example, ...]


def measure(path: str | Path, *, n_documents: int | None, patterns: Mapping[str, str]) -> Measured:
    """Measure a store; no secret is in the result.

    Args:
        path: The store, or `sample:NAME`.
        n_documents: Number of documents that were read into it; None for the user's own store.
        patterns: Further secrets: names of kinds to regular expressions.

    Raises:
        StoreError: The store cannot be read.
    """
    store = open_store(path)
    summary = summarize(store)
    score = _score(summary)
    with connect() as connection, reading(connection, str(store.path)):
        read(connection, [store], score or TOTAL_REWARD)
        size = _size(connection, summary, n_documents)
        trainable = _trainable(connection, summary)
        repeated = _repeated(connection)
        (n_errored,) = one_row(
            connection, "SELECT count(*) FROM store0.steps WHERE json_extract(extra, '$.error') IS NOT NULL"
        )
        chosen = _chosen(connection, score)
    clean = cleaner(patterns)
    dataset = open_dataset(path)
    examples = tuple(
        _example(which, value, dataset.episode(episode_id), clean) for which, episode_id, value in chosen
    )
    return Measured(
        size=size,
        trainable=trainable,
        repeated=repeated,
        secrets=_secrets(path, patterns),
        metrics=summary.metrics,
        outcomes=summary.outcomes,
        n_steps_errored=n_errored,
        score=score,
        examples=examples,
    )


def cleaner(patterns: Mapping[str, str]) -> Search:
    """Return the search that replaces secrets in texts with placeholders."""
    return Search(Finder({name: re.compile(text) for name, text in patterns.items()}), Placeholders())


def _score(summary: Summary) -> str | None:
    """Return the metric that separates good episodes from bad: a usual one, else the most frequent."""
    names = [
        one.name
        for one in sorted(summary.metrics, key=lambda one: -one.n)
        if one.level == MetricLevel.EPISODE and one.least is not None and one.least != one.most
    ]
    return next((name for name in (*_USUAL_SCORES, *names) if name in names), None)


def _size(connection: duckdb.DuckDBPyConnection, summary: Summary, n_documents: int | None) -> Size:
    bytes_of_texts = f"SELECT CAST(coalesce(sum({_TEXT_BYTES}), 0) AS BIGINT) FROM store0.steps"
    (n_bytes,) = one_row(connection, bytes_of_texts)
    return Size(
        n_documents=n_documents,
        n_episodes=summary.counts.n_episodes,
        n_steps=summary.counts.n_steps,
        n_input_tokens=summary.n_input_tokens,
        n_output_tokens=summary.n_output_tokens,
        n_steps_uncounted=summary.n_steps_uncounted,
        n_text_bytes=n_bytes,
        n_tokens_estimated=-(-n_bytes // BYTES_PER_TOKEN),
    )


def _trainable(connection: duckdb.DuckDBPyConnection, summary: Summary) -> Trainable:
    learned = weights(connection)
    # a prompt grows if it keeps the whole one before it, with its answer
    (n_growing,) = one_row(
        connection,
        """
        SELECT count(*) FROM (
            SELECT episode_id, bool_and(step_index = 0 OR n_prompt_kept >= n_before) AS grows FROM (
                SELECT episode_id, step_index, n_prompt_kept, lag(n_prompt_kept
                    + coalesce(json_array_length(messages), 0)
                    + CAST(completion IS NOT NULL AND CAST(completion AS VARCHAR) <> 'null' AS INTEGER))
                    OVER (PARTITION BY episode_id ORDER BY step_index) AS n_before
                FROM store0.steps
            ) GROUP BY episode_id
        ) WHERE grows
        """,
    )
    n_tools, n_calls = one_row(
        connection,
        "SELECT count(*) FILTER (tools IS NOT NULL AND CAST(tools AS VARCHAR) NOT IN ('null', '[]')), "
        "count(*) FILTER (list_contains(json_extract_string(completion, '$.content[*].type'), 'tool_call')) "
        "FROM store0.steps",
    )
    return Trainable(
        n_steps=learned.n_learned,
        not_trainable=learned.not_learned,
        n_episodes_growing=n_growing,
        n_steps_with_tools=n_tools,
        n_steps_with_calls=n_calls,
        n_steps_token_true=summary.n_token_true,
    )


def _repeated(connection: duckdb.DuckDBPyConnection) -> Repeated:
    same = duplicates(connection)
    n_first, n_different = one_row(
        connection,
        "SELECT count(*), count(DISTINCT hash(CAST(messages AS VARCHAR))) FROM store0.steps "
        "WHERE step_index = 0 AND messages IS NOT NULL AND CAST(messages AS VARCHAR) NOT IN ('null', '[]')",
    )
    return Repeated(
        n_answers=same.n_answers,
        n_same_answers=same.n_same_answers,
        n_first_prompts=n_first,
        n_same_first_prompts=n_first - n_different,
    )


def _secrets(path: str | Path, patterns: Mapping[str, str]) -> tuple[Secret, ...]:
    found: dict[str, dict[str, int]] = {}
    for each in scan(path, patterns=patterns).found:
        found.setdefault(each.kind, {})[each.place] = each.n_found
    secrets = []
    for kind, n_by_place in found.items():
        own = {place: n for place, n in n_by_place.items() if place not in _COPIES} or n_by_place
        secrets.append(Secret(kind=kind, n_found=sum(own.values()), places=tuple(sorted(own))))
    return tuple(sorted(secrets, key=lambda one: (-one.n_found, one.kind)))


def _chosen(connection: duckdb.DuckDBPyConnection, score: str | None) -> list[tuple[str, str, float | None]]:
    """Return the episodes to show: the best, the median and the worst; by length without a score."""
    key = "n_steps" if score is None else "score"
    rows = connection.execute(
        f"SELECT episode_id, score FROM e WHERE {key} IS NOT NULL ORDER BY {key} DESC, episode_id"
    ).fetchall()
    names = ("best", "typical", "worst") if score is not None else ("longest", "typical", "shortest")
    places = dict(zip(names, (0, (len(rows) - 1) // 2, len(rows) - 1), strict=True))
    seen: dict[str, tuple[str, str, float | None]] = {}
    for which, place in places.items():
        if rows:
            seen.setdefault(rows[place][0], (which, *rows[place]))
    return list(seen.values())


def _example(which: str, score: float | None, episode: Episode, clean: Search) -> Example:
    first = episode.prompt(0) if episode.steps else None
    answer = next((step.completion for step in reversed(episode.steps) if step.completion is not None), None)
    return Example(
        which=which,
        episode_id=clean.text(episode.episode_id, "id"),
        score=score,
        n_steps=episode.n_steps,
        outcome=str(episode.outcome),
        task=None if episode.task is None else _short(episode.task, clean),
        first_prompt=_short(_text(first[-1]) if first else "", clean),
        last_answer=_short("" if answer is None else _text(answer), clean),
    )


def _text(message: Any) -> str:
    texts = [block.text for block in message.content if isinstance(block, TextBlock) and block.text]
    texts += [block.result for block in message.content if isinstance(block, ToolResultBlock)]
    calls = [f"{one.name}({one.arguments})" for one in message.content if isinstance(one, ToolCallBlock)]
    return " ".join([*texts, *calls])


def _short(text: str, clean: Search) -> str:
    """Return a text on one line, with secrets replaced before it is cut: half a secret is not recognised."""
    line = " ".join(clean.text(text, "text").split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"
