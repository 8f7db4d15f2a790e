"""What the columns of each configuration are, from the models and the layout that define them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from trajkit.publishing.conversations import MESSAGE_COLUMNS, SFT
from trajkit.publishing.record import PublishedStore
from trajkit.publishing.tables import all_metrics
from trajkit.schema import Episode, Feedback, Transition
from trajkit.store.layout import CONTENT_HASH, TABLES, columns

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
    "messages": "The conversation as chat templates read it; every answer is to be learned.",
    "prompt": "What the model saw, as chat templates read it; nothing in it is to be learned.",
    "completion": "The answer to learn.",
}
_SFT = (
    ("tools", "list of json", "The tools that the model could call, as functions of the chat API."),
    (
        "metadata",
        "json",
        "Where the row is from: `episode_id`, `steps` with their `weights`, environment, task, seed, "
        "purpose, outcome, reward, metrics.",
    ),
)


def column_rows(
    configuration: str, stores: Sequence[PublishedStore], form: str
) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each column of a configuration; none of one that is no table.

    Args:
        configuration: Its name.
        stores: What is published.
        form: The format of the rows to train on.
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
    said = None if field is None else field.description
    return " ".join((said or _DERIVED.get(name, "")).split())
