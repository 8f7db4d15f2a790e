"""Long conversations come without what an earlier row has: the store is the one that whole rows make.

The whole way is the reference here: the same database is exported with and without heads.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.matrix import daily
from tests.sources.conftest import exported
from trajkit.errors import ServiceError
from trajkit.schema import Episode
from trajkit.sources.tensorzero.connect.clickhouse.connection import Connection
from trajkit.sources.tensorzero.connect.clickhouse.heads import Heads
from trajkit.sources.tensorzero.export import pull
from trajkit.sources.tensorzero.export.texts import heads
from trajkit.store.dataset import open_dataset

WORDS = ("a wall", "naïve — 你好", 'say "so" \\ now', "tab\there", "a, b]}", '},{"role":"user"', "])")


class Sent(NamedTuple):
    """What the database sent, a number for each query."""

    short: list[int]
    """Rows of which something was left out."""
    n_bytes: list[int]
    """Of the long texts."""
    whole: list[int]
    """Rows that were asked for as a whole after that."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Lets every database be asked for rows without heads; counts."""
    monkeypatch.setattr(pull, "LONG_BYTES", 0)
    found = Sent([], [], [])
    for name, column, known in (
        ("inferences", "input", "is_short"),
        ("model_inferences", "input_messages", "head_bytes"),
    ):
        monkeypatch.setattr(Heads, name, _counting(getattr(Heads, name), column, known, found))
    for name in ("whole_prompts", "whole_inputs"):
        monkeypatch.setattr(Heads, name, _counting_rows(getattr(Heads, name), found))
    return found


def _counting(method: Any, column: str, known: str, found: Sent) -> Any:
    def counted(*args: Any, **options: Any) -> Any:
        # one or several batches, as the server has merged its parts or not; two queries run side by side
        n_short = n_bytes = 0
        for batch in method(*args, **options):
            flags = batch.column(known)
            if known != "is_short":
                flags = flags.is_valid()
            n_short += flags.to_pylist().count(True)
            n_bytes += batch.column(column).nbytes
            yield batch
        found.short.append(n_short)
        found.n_bytes.append(n_bytes)

    return counted


def _counting_rows(method: Any, found: Sent) -> Any:
    def counted(*args: Any) -> Any:
        for batch in method(*args):
            found.whole.append(batch.num_rows)
            yield batch

    return counted


@pytest.fixture
def both(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: Sent) -> Callable[..., Any]:
    """Export in both ways, and demand the same rows; gives the episodes."""
    numbers = itertools.count()

    def read(**options: Any) -> list[Episode]:
        goal = tmp_path / f"store-{next(numbers)}"
        tally, manifest = exported(url, goal, **options)
        return [*sorted(open_dataset(goal), key=lambda episode: episode.episode_id), (tally, manifest.digest)]

    def compared(**options: Any) -> list[Episode]:
        found = read(**options)
        with monkeypatch.context() as whole:
            whole.setattr(pull, "LONG_BYTES", 1e12)
            expected = read(**options)
        assert found == expected
        return found[:-1]

    return compared


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


def converse(rows: Any, n_turns: int, *, say: Callable[[int], str] = "question {}".format, **row: Any) -> str:
    """A conversation that goes on at every turn."""
    episode_id, prompt = rows.id(), [message("user", say(0))]
    for number in range(n_turns):
        answer = f"answer {number} " + "and so on " * 20
        rows.chat_step(episode_id, output=[{"type": "text", "text": answer}], prompt=prompt, **row)
        prompt = [*prompt, message("assistant", answer), message("user", say(number + 1))]
    return str(episode_id)


def test_of_a_conversation_only_what_is_new_is_sent(rows: Any, both: Any, sent: Sent) -> None:
    for _ in range(3):
        converse(rows, 12)
    episodes = both()
    # the first prompt of each is whole; of inputs with one message nothing can be left out
    assert sum(sent.short[-2:]) == 3 * 11 * 2
    assert sum(sent.n_bytes[-2:]) < 3 * 12 * 700
    assert sent.whole == []
    for episode in episodes:
        assert [step.n_prompt_kept for step in episode.steps] == [2 * number for number in range(12)]
        assert [step.observation for step in episode.steps] == [f"question {n}" for n in range(12)]
        assert {step.input for step in episode.steps} == {None}


@pytest.mark.full
def test_a_share_of_the_episodes_is_sent_without_heads(rows: Any, both: Any, sent: Sent) -> None:
    wanted = [converse(rows, 5, tags={"keep": "yes"}) for _ in range(2)]
    converse(rows, 5)
    assert [episode.episode_id for episode in both(tags={"keep": "yes"})] == wanted
    assert sum(sent.short[-2:]) == 2 * 4 * 2


def random_history(rows: Any, chance: random.Random) -> None:
    """An episode whose prompts mostly go on: with tools, retries, edits, other systems, several calls."""
    episode_id, prompt, system = (
        rows.id(),
        [message("user", chance.choice(WORDS))],
        chance.choice([None, "Play."]),
    )
    for _ in range(chance.randrange(1, 9)):
        answer = chance.choice(WORDS) * chance.randrange(1, 4)
        said = {"messages": prompt} if system is None else {"system": system, "messages": prompt}
        kind = chance.choices(["same", "other input", "no input"], [9, 1, 1])[0]
        if kind == "other input":
            said = {"system": {"name": "x"}, "messages": [*prompt, message("user", "another")]}
        inference_id = rows.chat_step(
            episode_id,
            output=[{"type": "text", "text": answer}],
            input="" if kind == "no input" else json.dumps(said, ensure_ascii=False, separators=(",", ":")),
            calls=0,
        )
        for _ in range(chance.choices([0, 1, 2], [1, 12, 1])[0]):
            odd = chance.random() < 0.1
            spelled = json.dumps(prompt, ensure_ascii=odd, separators=(", ", ": ") if odd else (",", ":"))
            rows.call(inference_id, user="", text=answer, system=system, input_messages=spelled)
        kinds = ["on", "tool", "goes on", "again", "anew", "edited", "system"]
        match chance.choices(kinds, [9, 4, 1, 1, 1, 1, 1])[0]:
            case "on":
                prompt = [*prompt, message("assistant", answer), message("user", chance.choice(WORDS))]
            case "tool":
                call = {"type": "tool_call", "id": "1", "name": "look", "arguments": '{"at":[1,2]}'}
                result = {"type": "tool_result", "id": "1", "name": "look", "result": '},{"role":"user"'}
                prompt = [
                    *prompt,
                    {"role": "assistant", "content": [call]},
                    {"role": "user", "content": [result]},
                ]
            case "goes on":
                prompt = [*prompt, message("assistant", answer)]
            case "anew":
                prompt = [message("user", chance.choice(WORDS))]
            case "edited":
                prompt = [message("user", "edited"), *prompt[1:], message("user", chance.choice(WORDS))]
            case "system":
                system = "Another."


def test_any_history_gives_the_same_store(
    rows: Any, both: Any, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_LEAST_SAVED", -1e9)  # so little is proven that it would not be tried
    chance = random.Random(11)
    for _ in range(25):
        random_history(rows, chance)
    both(max_bad=1000)
    assert sum(sent.short) > 40
    assert sum(sent.whole) > 0


@pytest.mark.full
def test_a_generated_database_gives_the_same_store(
    shared_clickhouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for number, long_bytes in enumerate((0, 1e12)):
        monkeypatch.setattr(pull, "LONG_BYTES", long_bytes)
        monkeypatch.setattr(heads, "_LEAST_SAVED", -1e9)
        goal = tmp_path / f"store-{number}"
        digests.append(exported(shared_clickhouse, goal, include_eval=True, max_bad=1000)[1].digest)
    assert digests[0] == digests[1]


@pytest.mark.full
def test_agents_that_write_their_history_anew_are_sent_as_they_are(rows: Any, both: Any, sent: Sent) -> None:
    for _ in range(3):
        episode_id = rows.id()
        for number in range(8):
            prompt = [message("user", f"at {number}, before that: {'x' * 100 * number}")]
            rows.chat_step(episode_id, output=[{"type": "text", "text": "go"}], prompt=prompt)
    both()
    assert sum(sent.short) == 0
    assert sent.whole == []


@pytest.mark.full
def test_short_prompts_are_not_looked_at(rows: Any, url: str, tmp_path: Path, monkeypatch: Any) -> None:
    def never(*args: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(pull, "what_to_leave_out", never)
    converse(rows, 5)
    exported(url, tmp_path / "store")


def spoil(rows: Any, number: int, table: str, column: str, value: str) -> None:
    """Change one text of the `number`-th inference in the database; `value` is SQL."""
    key = "inference_id" if table == "ModelInference" else "id"
    rows.write()
    client = rows._client
    ids = client.query("SELECT id FROM ChatInference ORDER BY toUInt128(id)").result_rows
    client.command(
        f"ALTER TABLE {table} UPDATE {column} = {value} WHERE {key} = '{ids[number][0]}'"
        " SETTINGS mutations_sync = 1"
    )


SPOILT = [
    ("ModelInference", "input_messages", r"replaceOne(input_messages, 'question 0', '\xff')"),
    ("ModelInference", "input_messages", "replaceOne(input_messages, '\"user\"', '\"nobody\"')"),
    ("ModelInference", "input_messages", "''"),
    ("ModelInference", "output", "'no json'"),
    ("ChatInference", "input", "replaceOne(input, 'question 0', 'question Z')"),
    ("ChatInference", "output", r"'[{\"type\":\"text\",\"text\":\"\xff\"}]'"),
    ("ModelInference", "input_messages", "replaceOne(input_messages, 'question 0', '\"')"),
    ("ModelInference", "input_messages", "substring(input_messages, 1, 40)"),
    ("ModelInference", "input_messages", "'{}'"),
    ("ModelInference", "system", r"'\xff'"),
    ("ChatInference", "input", r"replaceOne(input, 'question 0', '\xff')"),
    ("ChatInference", "output", "'no json'"),
]


@pytest.mark.parametrize(
    ("number", "table", "column", "value"),
    daily(
        [
            pytest.param(number, *spoilt, marks=pytest.mark.full if place not in (0, 3, 4) or number else ())
            for number in (0, 2)
            for place, spoilt in enumerate(SPOILT)
        ],
        1,
    ),
)
def test_what_cannot_be_read_is_set_aside_as_from_whole_rows(
    rows: Any,
    both: Any,
    sent: Sent,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    column: str,
    value: str,
    number: int,
) -> None:
    monkeypatch.setattr(heads, "_LEAST_SAVED", -1e9)
    converse(rows, 4)
    converse(rows, 4)
    spoil(rows, number, table, column, value)
    both(max_bad=1000)
    assert sum(sent.short) > 0


@pytest.mark.full
def test_a_head_that_cannot_be_read_spoils_every_prompt_that_repeats_it(rows: Any, both: Any) -> None:
    converse(rows, 4)
    converse(rows, 4)
    for number in range(4):
        spoil(
            rows,
            number,
            "ModelInference",
            "input_messages",
            "replaceOne(input_messages, '\"user\"', '\"nobody\"')",
        )
    spoilt, sound = both(max_bad=1000)
    unreadable = "unreadable: prompt is not a list of messages"
    assert [step.mask_reason for step in spoilt.steps] == [unreadable] * 4
    assert {step.mask_reason for step in sound.steps} == {None}
    # what the prompt does not say is kept
    assert [len(step.input["messages"]) for step in spoilt.steps] == [1, 3, 5, 7]


@pytest.mark.full
@pytest.mark.parametrize("was", daily(["question 0", "answer 1"], 1))
@pytest.mark.parametrize("becomes", [r"'\xff'", pytest.param("'\"'", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "columns",
    [
        *(pytest.param((name,), marks=pytest.mark.full) for name in ("input_messages", "input")),
        ("input_messages", "input"),
    ],
)
def test_what_every_later_row_repeats_is_unreadable_in_all_of_them(
    rows: Any, both: Any, sent: Sent, was: str, becomes: str, columns: tuple[str, ...]
) -> None:
    converse(rows, 4)
    converse(rows, 8)
    for number in range(4):
        for column in columns:
            table = "ChatInference" if column == "input" else "ModelInference"
            spoil(rows, number, table, column, f"replaceAll({column}, '{was}', {becomes})")
    spoilt, sound = both(max_bad=1000)
    reasons = [step.mask_reason for step in spoilt.steps]
    assert [reason is None for reason in reasons] == [was == "answer 1" and n < 2 for n in range(4)]
    assert {step.mask_reason for step in sound.steps} == {None}
    assert sum(sent.short) > 0


@pytest.mark.full
def test_a_history_that_is_rewritten_in_the_same_length(rows: Any, both: Any, sent: Sent) -> None:
    """From the third step on, its beginning is another one, and not UTF-8."""
    converse(rows, 6)
    converse(rows, 20)
    for number in range(2, 6):
        for table, column in (("ModelInference", "input_messages"), ("ChatInference", "input")):
            spoil(rows, number, table, column, rf"replaceOne({column}, 'question 0', 'question \xff')")
    spoilt, _ = both(max_bad=1000)
    assert [step.mask_reason is None for step in spoilt.steps] == [True, True, False, False, False, False]
    assert sum(sent.short) > 0


@pytest.mark.full
def test_inputs_of_templates_beside_prompts_that_go_on(rows: Any, both: Any, sent: Sent) -> None:
    """Most inputs have arguments; those that have none are null all the same."""
    for _ in range(3):
        converse(rows, 6, input='{"system":{"name":"x"},"messages":[]}')
    converse(rows, 6)
    *others, same = both()
    assert {step.input is None for episode in others for step in episode.steps} == {False}
    assert {step.input for step in same.steps} == {None}
    assert sum(sent.short) > 0
    assert sent.whole == []


@pytest.mark.full
def test_the_input_is_kept_where_it_says_something_else(rows: Any, both: Any) -> None:
    episode_id = rows.id()
    user = message("user", "one")
    for said in (
        {"system": "Play.", "messages": [user]},
        {"system": "Another.", "messages": [user]},
        {"messages": [user]},
        {"system": {"mission": "m"}, "messages": [user]},
        {"system": "Play.", "messages": [message("user", "two")]},
    ):
        spelled = json.dumps(said, separators=(",", ":"))
        output = [{"type": "text", "text": "go"}]
        inference_id = rows.chat_step(episode_id, output=output, input=spelled, calls=0)
        rows.call(inference_id, user="one", text="go", system="Play.")
    (episode,) = both()
    assert [step.input is None for step in episode.steps] == [True, False, False, False, False]


def test_rows_that_are_gone_when_they_are_asked_for_again_are_an_error(
    rows: Any, url: str, sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converse(rows, 6)
    converse(rows, 6)
    spoil(
        rows, 3, "ModelInference", "input_messages", "replaceOne(input_messages, 'question 0', 'question Z')"
    )
    monkeypatch.setattr(Heads, "whole_prompts", lambda *args: iter(()))
    goal = tmp_path / "store"
    with pytest.raises(ServiceError, match="was removed during the export") as caught:
        exported(url, goal)
    assert caught.value.hint is not None
    assert not goal.exists()


@pytest.mark.full
def test_a_user_who_may_set_nothing_can_read_long_conversations(
    rows: Any, sent: Sent, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converse(rows, 5)
    monkeypatch.setattr(Connection, "_may_set", lambda self, name: False)
    _, manifest = exported(server.url_for(server.user), tmp_path / "store")
    assert manifest.counts.n_steps == 5
    assert sum(sent.short) > 0


@pytest.mark.full
def test_texts_of_more_than_a_window_have_their_last_message_found(rows: Any, both: Any, sent: Sent) -> None:
    converse(rows, 4, say=lambda number: f"{number} " + "long " * 4_000)
    (episode,) = both()
    assert [str(step.observation)[:2] for step in episode.steps] == ["0 ", "1 ", "2 ", "3 "]
    # the same rows as a sample, too
    assert sum(sent.short) == 2 * (3 + 3)
    assert pa.total_allocated_bytes() < 2**30
