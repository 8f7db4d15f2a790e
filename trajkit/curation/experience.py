"""Read a store's sampled tokens as rows for training a policy, in columns; count how its turns fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trajkit.curation.keys import group_key
from trajkit.curation.rows.steps import Chunk, Steps
from trajkit.curation.rows.tally import evaluation
from trajkit.schema import Model
from trajkit.store.dataset import Dataset

MOST_REALIGNED = 8
"""Maximum trailing tokens of a completion that a later prompt may tokenize differently without a fork."""

_TOKENS = ("prompt_token_ids", "completion_token_ids", "logprobs")
_LEFT = """CASE
    WHEN completion IS NULL OR CAST(completion AS VARCHAR) = 'null' THEN 'no answer'
    WHEN prompt_token_ids IS NULL OR coalesce(len(completion_token_ids), 0) = 0 THEN 'no token ids'
    WHEN coalesce(len(logprobs), 0) <> len(completion_token_ids) THEN 'no log-probabilities' END"""
"""Reasons why a step is in no row."""

# `before` is the previous step of the same agent. At each step a row equals the prompt and completion of that
# step, whichever steps came before: comparing each step with the previous one is enough.
_LINKED = """
    CREATE OR REPLACE TEMP TABLE trajkit_linked AS
    WITH sampled AS (
        SELECT episode_id, agent_name, step_index, CAST(prompt_token_ids AS INTEGER[]) AS prompt,
            CAST(completion_token_ids AS INTEGER[]) AS answer, CAST(logprobs AS FLOAT[]) AS logprobs,
            CAST(loss_weight AS FLOAT) AS weight, sha256(observation) AS state,
            {{'model_version': model_version, 'tokenizer': extra ->> '$.tokenizer',
              'temperature': TRY_CAST(extra ->> '$.sampling.temperature' AS DOUBLE),
              'top_p': TRY_CAST(extra ->> '$.sampling.top_p' AS DOUBLE),
              'is_masked': TRY_CAST(extra ->> '$.sampling.is_masked' AS BOOLEAN)}} AS how
        FROM {steps} WHERE {left} IS NULL
    ), paired AS (
        SELECT *, lag({{'prompt': prompt, 'answer': answer, 'how': how}}) OVER chain AS before
        FROM sampled WINDOW chain AS (PARTITION BY episode_id, agent_name ORDER BY step_index)
    ), compared AS (
        SELECT * EXCLUDE (before), len(before.prompt) AS n_prompt_before, len(before.answer) AS n_before,
            before.how IS DISTINCT FROM how AS is_changed,
            CASE WHEN prompt[:len(before.prompt)] = before.prompt
                THEN {alike} END AS n_alike
        FROM paired
    ), classified AS (
        SELECT *, CASE WHEN n_before IS NULL THEN 'first' WHEN is_changed THEN 'changed'
            WHEN n_alike = n_before THEN 'clean' WHEN n_before - n_alike <= {most} THEN 'realigned'
            ELSE 'forked' END AS kind
        FROM compared
    ), begun AS (SELECT *, NOT ({joined} AND kind IN ('clean', 'realigned')) AS is_start FROM classified)
    SELECT * EXCLUDE (n_alike, n_before, n_prompt_before, is_changed), weight <> 0 AS is_learned,
        len(prompt) - CASE WHEN is_start THEN 0 ELSE n_prompt_before + n_alike END AS n_context,
        CASE WHEN lead(is_start) OVER chain THEN len(answer)
            ELSE coalesce(lead(n_alike) OVER chain, len(answer)) END AS n_kept,
        count_if(is_start) OVER (chain ROWS UNBOUNDED PRECEDING) AS line
    FROM begun WINDOW chain AS (PARTITION BY episode_id, agent_name ORDER BY step_index)
"""
_ALIKE = """CASE WHEN prompt[len(before.prompt) + 1:len(before.prompt) + len(before.answer)] = before.answer
    THEN len(before.answer)
    ELSE coalesce(list_position([prompt[len(before.prompt) + i] = before.answer[i]
            FOR i IN range(1, len(before.answer) + 1)], false),
        len(prompt) - len(before.prompt) + 1) - 1 END"""
"""Number of tokens of the previous completion that the prompt repeats."""


def _each(context: str, kept: str) -> str:
    """Return SQL of a value per token of a row: one value for context, others for the completions."""
    return f"flatten(list(list_concat(repeat([{context}], n_context), {kept}) ORDER BY step_index))"


_HOW = ("model_version", "tokenizer", "temperature", "top_p", "is_masked")
_COLUMNS = {
    "episode_id": "l.episode_id",
    "step_index": "min(step_index)",
    "n_steps": "count(*)",
    "env_id": "any_value(e.env_id)",
    "task": "any_value(e.task)",
    "seed": "any_value(e.seed)",
    "group": "any_value(k.key)",
    "state": "first(state ORDER BY step_index)",
    "total_reward": "any_value(e.total_reward)",
    "input_ids": "last(list_concat(prompt, answer) ORDER BY step_index)",
    "loss_mask": _each("0::TINYINT", "repeat([is_learned::TINYINT], n_kept)"),
    "old_logprobs": _each("0::FLOAT", "logprobs[:n_kept]"),
    "advantages": _each("0::FLOAT", "repeat([weight], n_kept)"),
    **{name: f"any_value(how.{name})" for name in _HOW},
}
_ROWS = """
    SELECT {columns} FROM trajkit_linked l JOIN episodes e USING (episode_id) JOIN {keys} k USING (episode_id)
    GROUP BY l.episode_id, agent_name, line HAVING bool_or(is_learned) ORDER BY l.episode_id, 2
"""


class Fit(Model):
    """Counts of the tokens of a store that can be trained on as sampled, and of how its turns fit."""

    n_steps: int = 0
    """Steps that were read."""
    left: dict[str, int] = {}
    """Steps that are not learned, by reason: no ids, no log-probabilities, or no weight."""
    n_first: int = 0
    """Steps with tokens that are the first of an episode (or of an agent in it)."""
    n_clean: int = 0
    """Steps whose prompt begins with all ids of the previous step: they extend its row."""
    n_realigned: int = 0
    """Steps whose prompt tokenizes at most a few trailing tokens of the previous completion differently: they
    extend its row, and those tokens are not learned."""
    n_forked: int = 0
    """Steps whose prompt differs earlier: they begin a row."""
    n_changed: int = 0
    """Steps with other weights or sampling settings than the previous step: they begin a row."""
    n_tokens_dropped: int = 0
    """Sampled tokens that are not learned because a later prompt tokenizes them differently."""
    n_tokens: int = 0
    """Tokens of the rows."""
    n_learned_tokens: int = 0
    """Learned tokens of the rows."""
    n_rows: int = 0
    """Rows."""


@dataclass(eq=False)
class Experiences:
    """The rows of a dataset, as Arrow batches with the columns of `trajkit.schema.experience.Experience`.

    Rows come part by part, in the order of episodes and steps; memory holds a bounded number of steps.

    Raises:
        RequestError: The dataset has evaluation episodes.
        QueryError: `by` names an unknown column.
        StoreError: The store cannot be read.
    """

    dataset: Dataset
    """The dataset. The advantage of a token is the `loss_weight` of its step (`trajkit weight`)."""
    _: KW_ONLY
    by: Sequence[str] = ()
    """Columns that make a group; if empty, environment, task and seed."""
    is_joined: bool = True
    """Join steps whose prompts extend the ids of the previous step to one row."""
    most_realigned: int = MOST_REALIGNED
    """Maximum trailing tokens of a completion that a prompt may tokenize differently; they become context.
    If more differ, the step begins a row of its own, and no token is lost."""
    include_eval: bool = False
    """Also take episodes that were played for evaluation."""
    fit: Fit = field(default_factory=Fit, init=False)
    """Counts of the batches read so far."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the rows, from the beginning."""
        self.fit = Fit()
        with Steps(self.dataset) as steps:
            if steps.n_evaluation and not self.include_eval:
                raise evaluation(self.dataset.store.path, steps.n_evaluation)
            keys = group_key(steps.connection, self.dataset.store, self.by).relation
            columns = ", ".join(f'{sql} AS "{name}"' for name, sql in _COLUMNS.items())
            for chunk in steps.chunks(_TOKENS):
                self._link(steps, chunk)
                table = steps.read(_ROWS.format(columns=columns, keys=keys))
                self._count_rows(table)
                yield from table.to_batches()

    def _link(self, steps: Steps, chunk: Chunk) -> None:
        """Create the table `trajkit_linked` of the steps with tokens, and count all steps."""
        mine = steps.rows_of(chunk)
        steps.run(
            _LINKED.format(
                steps=mine,
                left=_LEFT,
                alike=_ALIKE,
                most=int(self.most_realigned),
                joined="true" if self.is_joined else "false",
            ),
            chunk,
        )
        reasons = steps.read(
            f"SELECT coalesce({_LEFT}, CASE WHEN loss_weight = 0 THEN coalesce(mask_reason, 'weight 0') END) "
            f"AS reason, count(*) AS n FROM {mine} GROUP BY 1",
            chunk,
        ).to_pylist()
        kinds: Counter[str] = Counter()
        for row in steps.read(
            "SELECT kind, count(*) n, sum(len(answer) - n_kept) n_dropped FROM trajkit_linked GROUP BY kind"
        ).to_pylist():
            kinds[f"n_{row['kind']}"] += row["n"]
            kinds["n_tokens_dropped"] += int(row["n_dropped"])
        left = Counter(self.fit.left)
        left.update({row["reason"]: row["n"] for row in reasons if row["reason"] is not None})
        self._add(kinds, n_steps=sum(row["n"] for row in reasons))
        self.fit = self.fit.model_copy(update={"left": dict(sorted(left.items()))})

    def _count_rows(self, table: pa.Table) -> None:
        masks: Any = pc.list_flatten(table.column("loss_mask"))
        n_learned = int(pc.sum(masks).as_py() or 0)
        self._add({}, n_rows=table.num_rows, n_tokens=len(masks), n_learned_tokens=n_learned)

    def _add(self, counts: Counter[str] | dict[str, int], **more: int) -> None:
        numbers = Counter(self.fit.model_dump(exclude={"left"}))
        numbers.update({**counts, **more})
        self.fit = self.fit.model_copy(update=dict(numbers))
