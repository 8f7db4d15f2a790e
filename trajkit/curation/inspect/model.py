"""The result of `trajkit inspect`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from trajkit._core.output import console
from trajkit._core.output.result import Result
from trajkit.schema import Model
from trajkit.store.summary import MetricSummary


class Share(Model):
    """Which part of a large place was read."""

    n_bytes: int | None
    """Size of the part; None where it is not known."""
    n_bytes_of: int | None
    """Size of the whole; None where it is not known."""
    how: str
    """Which part it is, such as `evenly spread lines`."""

    @property
    def share(self) -> float | None:
        """The part by its size, from 0 to 1; None where it is not known."""
        if not self.n_bytes or not self.n_bytes_of:
            return None
        return min(1.0, self.n_bytes / self.n_bytes_of)


class Size(Model):
    """How much there is."""

    n_documents: int | None
    """Documents that were seen; None for a store."""
    n_episodes: int
    n_steps: int
    n_input_tokens: int | None
    """Tokens of the prompts, each prompt whole, as they were logged; None if none were."""
    n_output_tokens: int | None
    """Tokens of the answers, as they were logged; None if none were."""
    n_steps_uncounted: int
    """Steps whose tokens were not logged."""
    n_text_bytes: int
    """Bytes of the texts, each message once: contents, arguments and results."""
    n_tokens_estimated: int
    """An estimate from `n_text_bytes`: 4 bytes a token."""


class Trainable(Model):
    """What can be learned."""

    n_steps: int
    """Steps with a known prompt and an answer, that are not for evaluation or masked."""
    not_trainable: dict[str, int]
    """The other steps, by reason."""
    n_episodes_growing: int
    """Episodes whose prompts only grow: the whole conversation is one row."""
    n_steps_with_tools: int
    """Steps whose offered tools are known."""
    n_steps_with_calls: int
    """Steps whose answer calls a tool."""
    n_steps_token_true: int
    """Steps with sampled token ids and log-probabilities."""


class Wrong(Model):
    """Something that is wrong, and where."""

    place: str
    """Such as `a.jsonl:12`."""
    kind: str
    """What is wrong; the value itself is left out, as it may be secret."""


class Failed(Model):
    """What failed."""

    outcomes: dict[str, int]
    """Episodes by outcome."""
    n_steps_errored: int
    """Steps with an error, such as a failed call."""
    left: dict[str, int]
    """Documents that cannot be read or were set aside, by reason."""
    places: tuple[Wrong, ...]
    """The first damaged documents."""
    unread: dict[str, int]
    """Files that no format looks at, by suffix."""
    missing: dict[str, int]
    """Episodes about which something is not known, by what it is."""


class Repeated(Model):
    """Exact duplicates."""

    n_answers: int
    """Steps with a known prompt and an answer."""
    n_same_answers: int
    """Steps that repeat another: the same prompt and the same answer."""
    n_first_prompts: int
    """Episodes whose first prompt is known."""
    n_same_first_prompts: int
    """Episodes whose first prompt another one has, too; the first of each is not counted."""


class Secret(Model):
    """Secrets and personal data of one kind."""

    kind: str
    """Such as `github-token`."""
    n_found: int
    """Occurrences."""
    places: tuple[str, ...]
    """Where, such as `steps.messages`."""


class Leaked(Model):
    """What is shared with an evaluation set."""

    against: str
    """The evaluation set."""
    n_episodes: int
    """Its episodes."""
    found: dict[str, int]
    """Shared items by kind, such as `identical prompts`."""
    n_blocking: int
    """Shared items that forbid training."""


class Example(Model):
    """An episode, without secrets and shortened."""

    which: str
    """`best`, `typical`, `worst`, or by length `longest`, `shortest`."""
    episode_id: str
    score: float | None
    n_steps: int
    outcome: str
    task: str | None
    first_prompt: str
    """The latest message of the first prompt."""
    last_answer: str
    """The last answer: its text, else its calls."""


class Inspection(Model, Result):
    """What a reader needs to know first about some logs."""

    place: str
    """What was read."""
    format: str
    """The recognised format or source; `store` for a store."""
    n_bytes: int | None
    """Size of all of it; None where it is not known."""
    sample: Share | None
    """The part that was read; None for all of it."""
    size: Size
    trainable: Trainable
    score: str | None
    """The metric by which the examples are chosen; None for their length."""
    metrics: tuple[MetricSummary, ...]
    """Every metric, with count, mean and range."""
    failed: Failed
    repeated: Repeated
    secrets: tuple[Secret, ...]
    """By kind, the most frequent first; never a value."""
    leaked: Leaked | None
    """None where no evaluation set was given."""
    examples: tuple[Example, ...]
    commands: tuple[str, ...]
    """What to type next."""

    @property
    def times(self) -> float | None:
        """By what counts of the part are multiplied for the whole; 1 where all was read; None if unknown."""
        if self.sample is None:
            return 1.0
        share = self.sample.share
        return None if share is None else 1 / share

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and what the counts of a part make of the whole."""
        times = self.times
        value = self.model_dump(mode="json")
        value["extrapolated"] = self.sample is not None
        if self.sample is not None and times is not None:
            value["estimates_of_the_whole"] = {
                "n_episodes": round(self.size.n_episodes * times),
                "n_steps": round(self.size.n_steps * times),
                "n_tokens": round(self.size.n_tokens_estimated * times),
            }
        return value

    def __str__(self) -> str:
        from trajkit.curation.inspect.text import lines

        return "\n".join(console.line(*pieces) for pieces in lines(self))

    def __repr__(self) -> str:
        return f"<inspect of {Path(self.place).name}: {self.size.n_episodes:,} episodes, {self.format}>"

    def print_text(self) -> None:
        """Print the page on stdout; on a terminal in colour, and no wider than it."""
        from trajkit.curation.inspect.text import lines

        n_columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for pieces in lines(self, n_columns):
            console.result(*pieces)
