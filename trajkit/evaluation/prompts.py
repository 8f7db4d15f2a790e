"""The held-out prompts of logged steps, their groups, and their overlap with training data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import duckdb

from trajkit.curation.keys import group_text
from trajkit.curation.leaks.texts import hashed_steps, step_texts
from trajkit.curation.pair_file import DATA_NAME, open_pairs
from trajkit.curation.pair_file import MANIFEST_NAME as PAIRS
from trajkit.errors import NothingMatched, QueryError, StoreError
from trajkit.evaluation.exposure import Exposure, Seen, Unsure
from trajkit.evaluation.groups import PROMPTS
from trajkit.schema import Episode, Message, Model, Transition
from trajkit.schema.base import Count, Name
from trajkit.store.dataset import Dataset
from trajkit.store.engine import connect, literal
from trajkit.store.reader import Store, open_store
from trajkit.store.view import create_views, spans

Which = Literal["last", "all"]
"""The prompts of an episode to answer: the last one, or all."""


class Prompt(NamedTuple):
    """The prompt of one logged step."""

    number: int
    """Position among the prompts of the store, from 0."""
    messages: tuple[Message, ...]
    """The prompt itself."""
    step: Transition
    """The logged step."""
    episode: Episode
    """The logged episode."""
    group: str
    """Group of the prompt: prompts of one customer, or of one episode, are not independent."""

    @property
    def place(self) -> str:
        """Its place in the store, as EPISODE:STEP."""
        return f"{self.episode.episode_id}:{self.step.step_index}"


class PromptOverlap(Model):
    """Prompts of the evaluation that a model has already seen."""

    variant: Name
    """Variant that uses the model."""
    model: Name
    """The model, or the job that trained it."""
    how: Name
    """How the model used them."""
    place: Name
    """The first such prompt, as EPISODE:STEP."""
    n_prompts: Count
    """Number of prompts."""
    is_text: bool
    """Whether only the text is the same; otherwise the episode itself was seen."""

    def __str__(self) -> str:
        others = f" and {self.n_prompts - 1:,} more" if self.n_prompts > 1 else ""
        text = "the same prompt as " if self.is_text else ""
        return f"{self.model} ({self.variant}) {self.how} {text}{self.place}{others}"


class Prompts:
    """The prompts of a store for models to answer. Memory holds the group of each episode, and no text.

    Args:
        dataset: The logged episodes.
        which: The steps of an episode: the last one with a prompt, or all.
        by: Columns that define the groups, as in `trajkit split`; empty for one group per episode.

    Raises:
        QueryError: There is no such column.
        NothingMatched: No step has a prompt.
        StoreError: The store is damaged.
    """

    def __init__(self, dataset: Dataset, *, which: Which = "last", by: Sequence[str] = ()) -> None:
        self.dataset, self.which, self.by = dataset, which, tuple(by)
        with connect() as connection:
            create_views(connection, dataset.store)
            self._groups = _groups(connection, dataset.store, by) if by else {}
            counted = "*" if which == "all" else "DISTINCT episode_id"
            row = connection.execute(
                f"SELECT count({counted}), coalesce(sum(length(CAST(messages AS VARCHAR))), 0) FROM steps "
                "WHERE messages IS NOT NULL"
            ).fetchone()
        assert row is not None
        self.n_prompts, n_characters = int(row[0]), int(row[1])
        self.n_characters = n_characters * (4 if which == "all" else 1)
        """Estimated number of characters of all prompts."""
        if not self.n_prompts:
            raise NothingMatched(f"no step of {dataset.store.path} has a prompt that a model could answer")

    @property
    def env_id(self) -> str:
        """Name that replaces the environment's in reports: the store, by its content."""
        return f"{PROMPTS}{self.dataset.store.manifest.digest[:8]}"

    def __iter__(self) -> Iterator[Prompt]:
        number = 0
        for episode in self.dataset:
            known = [
                (step, prompt)
                for step, prompt in zip(episode.steps, episode.prompts(), strict=True)
                if prompt
            ]
            for step, prompt in known if self.which == "all" else known[-1:]:
                group = self._groups.get(episode.episode_id, episode.episode_id)
                yield Prompt(number, prompt, step, episode, group)
                number += 1


def learned_prompts(seen: Sequence[Seen], prompts: Prompts) -> tuple[tuple[PromptOverlap, ...], Exposure]:
    """Find the prompts that the compared models have seen, in an episode or as the same text.

    Args:
        seen: The data behind the models.
        prompts: The prompts of the evaluation.

    Returns:
        The overlaps, and the exposure, which has only the models whose data is unknown.
    """
    overlaps: list[PromptOverlap] = []
    unsure: list[Unsure] = []
    with connect() as connection:
        if any(each.store is not None for each in seen):
            _read_asked(connection, prompts)
        for each in seen:
            doubt = each.doubt
            if each.store is not None:
                try:
                    doubt = _read_learned(connection, each)
                    overlaps += _overlaps(connection, each)
                except (StoreError, duckdb.Error) as error:
                    doubt = str(error).splitlines()[0]
            if doubt is not None:
                unsure.append(Unsure(variant=each.variant, model=each.model, reason=doubt))
    return tuple(overlaps), Exposure((), tuple(unsure))


def _groups(connection: duckdb.DuckDBPyConnection, store: Store, by: Sequence[str]) -> dict[str, str]:
    """Return the group of each episode; one without a value of the columns is its own group."""
    text = group_text(connection, store, by)
    return dict(
        connection.execute(f"SELECT episode_id, coalesce({text}, episode_id) FROM episodes").fetchall()
    )


def _read_asked(connection: duckdb.DuckDBPyConnection, prompts: Prompts) -> None:
    """Create the table `asked` with the hash of each prompt to answer."""
    _texts(connection, "evaluated", prompts.dataset.store)
    last = "QUALIFY row_number() OVER (PARTITION BY episode_id ORDER BY step_index DESC) = 1"
    last = "" if prompts.which == "all" else last
    connection.execute(
        f"CREATE TABLE asked AS SELECT episode_id, step_index, prompt FROM evaluated.texts {last}"
    )


def _texts(connection: duckdb.DuckDBPyConnection, schema: str, store: Store) -> None:
    """Create `SCHEMA.texts`, with the hash of each step's prompt."""
    connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    connection.execute(f"CREATE SCHEMA {schema}")
    connection.execute(f"SET schema = '{schema}'")
    create_views(connection, store)
    connection.execute(f"CREATE TABLE hashed AS {hashed_steps()}")
    connection.execute(f"CREATE TABLE texts AS {step_texts('hashed')} LIMIT 0")
    for span in spans(connection):
        connection.execute(f"INSERT INTO texts {step_texts(f'(SELECT * FROM hashed WHERE {span})')}")
    connection.execute("SET schema = 'main'")


def _read_learned(connection: duckdb.DuckDBPyConnection, seen: Seen) -> str | None:
    """Create `learned_ids` and `learned_prompts`; return a reason if the data has changed, else None."""
    assert seen.store is not None
    if (seen.store / PAIRS).is_file():
        pairs = open_pairs(seen.store)
        file = literal(str(seen.store / DATA_NAME))
        ids = (
            f"SELECT chosen_episode_id AS episode_id FROM read_parquet({file}) "
            f"UNION SELECT rejected_episode_id FROM read_parquet({file})"
        )
        digest, texts = pairs.manifest.digest, "SELECT prompt FROM asked LIMIT 0"
    else:
        store = open_store(seen.store)
        _texts(connection, "learned", store)
        digest, ids = store.manifest.digest, "SELECT episode_id FROM learned.episodes"
        texts = "SELECT DISTINCT prompt FROM learned.texts"
    connection.execute(f"CREATE OR REPLACE TABLE learned_ids AS {ids}")
    connection.execute(f"CREATE OR REPLACE TABLE learned_prompts AS {texts}")
    return None if digest == seen.digest else f"{seen.store} has changed since the training"


def _overlaps(connection: duckdb.DuckDBPyConnection, seen: Seen) -> Iterator[PromptOverlap]:
    is_learned = "episode_id IN (FROM learned_ids)"
    conditions = {False: is_learned, True: f"NOT {is_learned} AND prompt IN (FROM learned_prompts)"}
    for is_text, condition in conditions.items():
        row = connection.execute(
            "SELECT count(*), min(episode_id || ':' || CAST(step_index AS VARCHAR)) FROM asked "
            f"WHERE {condition}"
        ).fetchone()
        if row is not None and row[0]:
            yield PromptOverlap(
                variant=seen.variant,
                model=seen.model,
                how=seen.how,
                place=row[1],
                n_prompts=row[0],
                is_text=is_text,
            )


def shared_groups(seen: Sequence[Seen], prompts: Prompts) -> Mapping[str, tuple[int, int]]:
    """Count the groups of the evaluation that are also in each model's training data.

    Returns:
        By the path of the data: the number of shared groups, and that of the evaluation. Data without
        the columns of the groups is left out.
    """
    found: dict[str, tuple[int, int]] = {}
    mine = set(prompts._groups.values())
    for each in seen:
        if not mine or each.store is None or str(each.store) in found or (each.store / PAIRS).is_file():
            continue
        try:
            with connect() as connection:
                store = open_store(each.store)
                create_views(connection, store)
                theirs = set(_groups(connection, store, prompts.by).values())
        except (StoreError, QueryError):
            continue
        found[str(each.store)] = len(mine & theirs), len(mine)
    return found
