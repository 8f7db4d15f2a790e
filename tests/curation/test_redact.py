"""Redaction, on texts with secrets that are drawn here and stand nowhere else."""

from __future__ import annotations

import json
import random
import re
import string
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.curation.planted import KEY_KINDS, harmless, planted
from tests.matrix import daily
from tests.pages import printed
from trajkit.curation.redact import redact, scan
from trajkit.curation.redaction.column import Search, leaves
from trajkit.curation.redaction.shape import KINDS
from trajkit.curation.redaction.text import Finder, Placeholders
from trajkit.curation.selection.select import select
from trajkit.errors import RequestError
from trajkit.schema import (
    Episode,
    Feedback,
    FeedbackKind,
    Message,
    TextBlock,
    ToolCallBlock,
    Transition,
    message,
)
from trajkit.store.dataset import open_dataset
from trajkit.store.layout import STEPS
from trajkit.store.reader import open_store, verify
from trajkit.store.writer import write_episodes

Write = Callable[[Iterable[Episode]], Path]
PAGE = (Path(__file__).parents[2] / "docs" / "redact.md").read_text(encoding="utf-8")
N_EACH = 100
DRAW = random.Random(7)
KEY = "ghp_" + "".join(DRAW.choices(string.ascii_letters + string.digits, k=36))
MAIL = "joe.doe@corp.io"


def step(index: int = 0, **fields: Any) -> Transition:
    return Transition(
        **{
            "step_index": index,
            "messages": (message("user", "hello"),),
            "completion": message("assistant", "go"),
            **fields,
        }
    )


def episode(name: str, *steps: Transition, **fields: Any) -> Episode:
    return Episode(**{"episode_id": name, "source": "test", "steps": steps or (step(),), **fields})


def told(name: str, text: str) -> Episode:
    return episode(name, step(messages=(message("user", text),)))


def texts(path: Path) -> list[str]:
    """The first message of each episode."""
    return [each.steps[0].messages[0].text for each in open_dataset(path)]  # type: ignore[index]


def found_in(texts: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Kinds and values by text."""
    parts = {text: list(leaves(text, is_json=False)) for text in texts}
    spans = Finder().find({leaf for some in parts.values() for leaf in some})
    return {
        text: [(span.kind, leaf[span.start : span.end]) for leaf in some for span in spans.get(leaf, ())]
        for text, some in parts.items()
    }


def test_planted_secrets_are_found_by_their_kind_and_what_only_looks_like_some_is_not() -> None:
    corpus = list(planted(N_EACH, seed=1))
    found = found_in([each.text for each in corpus])
    hit = Counter(each.kind for each in corpus if each.value in [value for _, value in found[each.text]])
    n_of = Counter(each.kind for each in corpus)
    assert n_of.keys() <= set(KINDS)
    assert {kind: n for kind, n in n_of.items() if n < N_EACH} == {}
    n_keys = sum(n for kind, n in n_of.items() if kind in KEY_KINDS)
    assert sum(n for kind, n in hit.items() if kind in KEY_KINDS) / n_keys >= 0.99
    assert {kind: hit[kind] / n for kind, n in n_of.items() if hit[kind] / n < 0.98} == {}
    values = [(each, kind, value) for each in corpus for kind, value in found[each.text]]
    assert {(each.kind, kind) for each, kind, value in values if value == each.value} == {
        (kind, kind) for kind in n_of
    }
    extra = [(kind, value) for each, kind, value in values if each.value not in value]
    extra += [pair for pairs in found_in(harmless(N_EACH, seed=2)).values() for pair in pairs]
    n_right = sum(hit.values())
    assert n_right / (n_right + len(extra)) >= 0.99, extra[:20]


@pytest.mark.full
def test_a_second_pass_over_everything_planted_finds_nothing(write: Write, tmp_path: Path) -> None:
    some = list(planted(6, seed=3))
    rest = list(harmless(3, seed=4))

    def episodes() -> Iterator[Episode]:
        for number, each in enumerate(some):
            call = ToolCallBlock(id="c", name="f", arguments=json.dumps({"x": each.text, "n": [1, True]}))
            answer = Message(role="assistant", content=(TextBlock(text=rest[number % len(rest)]), call))
            yield episode(
                f"e{number}",
                step(messages=(message("user", each.text),), completion=answer, observation=each.text),
                tags={"said": each.text},
            )

    path = write(episodes())
    made = redact(path, tmp_path / "clean")
    assert made.report.n_found > 4 * len(some) * 0.98
    assert scan(tmp_path / "clean").found == ()
    for each in open_dataset(tmp_path / "clean"):
        (block,) = (b for b in each.steps[0].completion.content if isinstance(b, ToolCallBlock))  # type: ignore[union-attr]
        assert json.loads(block.arguments)["n"] == [1, True]
    said = b"".join(file.read_bytes() for file in (tmp_path / "clean").rglob("*.json"))
    assert not [each.value for each in some if each.value.encode() in said]


def test_the_same_value_has_the_same_placeholder_in_the_whole_store(write: Write, tmp_path: Path) -> None:
    episodes = [
        episode(
            f"{MAIL}-{number}",
            step(messages=(message("user", f"I am {MAIL} {number}"),), function_name=f"f/{MAIL}"),
            tags={"user": MAIL, "other": f"p{number}@corp.io"},
            feedback=(
                Feedback(
                    feedback_id=f"f{number}",
                    episode_id=f"{MAIL}-{number}",
                    kind=FeedbackKind.COMMENT,
                    metric_name="comment",
                    value=f"ask {MAIL}",
                    created_at=datetime.now(UTC),
                ),
            ),
        )
        for number in range(3)
    ]
    redact(write(episodes), tmp_path / "clean")
    clean = list(open_dataset(tmp_path / "clean"))
    mine = clean[0].tags["user"]
    assert re.fullmatch(r"\[EMAIL_[0-9]+\]", mine)
    for each in clean:
        assert each.tags["user"] == mine
        assert each.episode_id.startswith(f"{mine}-")
        assert each.steps[0].messages[0].text.startswith(f"I am {mine} ")  # type: ignore[index]
        assert each.steps[0].function_name == f"f/{mine}"
        assert each.feedback[0].value == f"ask {mine}"
    assert len({each.tags["other"] for each in clean} | {mine}) == 4


def test_json_stays_json_and_types_stay_types(write: Write, tmp_path: Path) -> None:
    inner = f'{{"b": 1e3, "a":[1.50, true, null, 12345678901234567890], "k\\u0065y": "{KEY}"}}'
    outer = {"arguments": inner, "n": 5551234567, "yes": True, "none": None, f"by {MAIL}": 1.0}
    path = write([episode("e", step(info=outer, observation=inner, action={"to": [MAIL, 3]}))])
    redact(path, tmp_path / "clean")
    (clean,) = next(iter(open_dataset(tmp_path / "clean"))).steps
    changed = inner.replace(KEY, "[GITHUB_TOKEN_1]")
    assert clean.observation == changed, "spaces, order and numbers are as they were"
    assert clean.info == {
        **{name: value for name, value in outer.items() if MAIL not in name},
        "arguments": changed,
        "by [EMAIL_1]": 1.0,
    }
    assert clean.action == {"to": ["[EMAIL_1]", 3]}


@pytest.mark.parametrize(
    "text",
    [
        '{"x": "joe.doe\\u0040corp.io"}',
        '{"x": "https:\\/\\/me:s3cr3t-pw\\/x@db.corp.io\\/y"}',
        '{"x": "{\\"y\\": \\"joe.doe\\\\u0040corp.io\\"}"}',
        '{"x": "half \\ud83d joe.doe@corp.io"}',
        '{"x": "marks \\u0002 joe.doe@corp.io \\u0003"}',
        'cut off: {"x": "line\\njoe.doe@corp.io',
    ],
)
def test_no_way_of_writing_it_hides_a_value(text: str) -> None:
    column = next(column for column in STEPS if column.name == "observation")
    search = Search(Finder(), Placeholders())
    values = pa.chunked_array([[text]])
    changed = search.column(values, "steps", column)
    assert changed is not None
    made = changed.applied(values)
    assert "corp.io" not in made.to_pylist()[0].replace("@db.corp.io", "")
    assert search.findings.report().n_found == 1
    if text.startswith("{"):
        assert isinstance(json.loads(made.to_pylist()[0]), dict)


def test_a_store_without_any_keeps_its_digest(tmp_path: Path) -> None:
    made = redact("sample:babyai", tmp_path / "clean")
    assert made.report.found == ()
    assert made.manifest is not None
    assert made.manifest.digest == open_store("sample:babyai").manifest.digest
    assert made.entry.verb == "redact"


def test_token_ids_of_what_changed_are_gone(write: Write, tmp_path: Path) -> None:
    ids: dict[str, Any] = {"prompt_token_ids": (1, 2), "completion_token_ids": (3,), "logprobs": (-0.5,)}
    path = write(
        [
            episode("a", step(**ids), step(1, completion=message("assistant", MAIL), **ids), step(2, **ids)),
            episode("b", step(**ids)),
        ]
    )
    redact(path, tmp_path / "clean")
    changed, same = open_dataset(tmp_path / "clean")
    assert [each.prompt_token_ids for each in changed.steps] == [None] * 3, "later prompts hold the answer"
    assert [each.completion_token_ids for each in changed.steps] == [(3,), None, (3,)]
    assert [each.logprobs for each in changed.steps] == [(-0.5,), None, (-0.5,)]
    assert same.steps[0].prompt_token_ids == (1, 2)


def test_patterns_of_the_user_are_kinds_of_their_own(write: Write, tmp_path: Path) -> None:
    path = write([told("e", "customer C-123456, user role 7, C-9")])
    patterns = {"customer": "C-[0-9]{6}", "who": r"(?<=user )(\w+)"}
    made = redact(path, tmp_path / "clean", patterns=patterns)
    assert texts(tmp_path / "clean") == ["customer [CUSTOMER_1], user [WHO_1] 7, C-9"]
    (clean,) = open_dataset(tmp_path / "clean")
    assert clean.steps[0].messages[0].role == "user"  # type: ignore[index]  # the schema's word is left alone
    assert made.entry.arguments["pattern"] == {"customer": None, "who": None}
    assert "C-[0-9]" not in made.entry.model_dump_json()
    assert scan(tmp_path / "clean", patterns=patterns).found == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([f"[EMAIL_41] wrote to {MAIL}"], ["[EMAIL_41] wrote to [EMAIL_42]"]),
        # it is met after the first value has its number
        ([f"write to {MAIL}", "[EMAIL_41] wrote"], ["write to [EMAIL_42]", "[EMAIL_41] wrote"]),
    ],
)
def test_numbers_go_on_wherever_an_earlier_placeholder_stands(
    write: Write, tmp_path: Path, before: list[str], after: list[str]
) -> None:
    redact(write(told(f"e{n}", each) for n, each in enumerate(before)), tmp_path / "clean")
    assert texts(tmp_path / "clean") == after
    assert scan(tmp_path / "clean").found == ()


@pytest.mark.full
def test_episodes_without_any_keep_their_hashes_and_the_others_get_theirs(
    write: Write, tmp_path: Path
) -> None:
    path = write(episode(f"e{n}", step(), step(1, observation=MAIL if n % 3 == 0 else "x")) for n in range(9))
    made = redact(path, tmp_path / "clean")
    verify(open_store(tmp_path / "clean"), deep=True)
    hashes = [
        {
            row["episode_id"]: row["content_hash"]
            for part in open_store(each).parts("episodes")
            for row in pq.read_table(part, columns=["episode_id", "content_hash"]).to_pylist()
        }
        for each in (path, tmp_path / "clean")
    ]
    assert {name for name in hashes[0] if hashes[0][name] != hashes[1][name]} == {"e0", "e3", "e6"}
    assert [each.n_steps for each in open_dataset(tmp_path / "clean")] == [2] * 9
    again = redact(path, tmp_path / "again")
    assert made.manifest is not None
    assert again.manifest is not None
    assert made.manifest.digest == again.manifest.digest


def test_a_store_without_rows_is_redacted_too(write: Write, tmp_path: Path) -> None:
    made = redact(write([]), tmp_path / "clean")
    assert made.report.found == ()
    assert open_store(tmp_path / "clean").manifest.counts.n_episodes == 0


def test_kinds_can_be_left_alone(write: Write) -> None:
    path = write([told("e", f"{MAIL} {KEY}")])
    assert scan(path).n_by_kind == {"email": 1, "github-token": 1}
    assert scan(path, skip=["email"]).n_by_kind == {"github-token": 1}
    assert scan(path, skip=["github-token"]).n_by_kind == {"email": 1}


@pytest.mark.parametrize(
    ("patterns", "skip", "words"),
    [
        ({"a b": "x"}, (), "cannot be called 'a b'"),
        ({"Email": "x"}, (), "cannot be called 'Email'"),
        ({"x": "(s3cret"}, (), "the pattern x is not a regular expression"),
        ({"x": "s3cret*|"}, (), "the pattern x matches empty text"),
        ({}, ("mail",), "no kind 'mail'"),
    ],
)
def test_what_cannot_be_looked_for_is_said_without_the_pattern(
    patterns: dict[str, str], skip: tuple[str, ...], words: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(words)) as caught:
        scan("sample:babyai", patterns=patterns, skip=skip)
    assert "s3cret" not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"


def test_the_manifest_says_nothing_that_was_taken_out(write: Write, tmp_path: Path) -> None:
    path = write([episode("e", task=MAIL), episode("f", task="other")])
    select(path, tmp_path / "selected", where=f"task = '{MAIL}'")
    made = redact(tmp_path / "selected", tmp_path / "clean")
    assert MAIL.encode() not in (tmp_path / "clean" / "manifest.json").read_bytes()
    assert [each.place for each in made.report.found if each.place.startswith("manifest")] == [
        "manifest.lineage"
    ]
    assert open_store(tmp_path / "clean").manifest.lineage[-1].parent_digest == (
        open_store(tmp_path / "selected").manifest.digest
    )


def test_every_kind_is_documented() -> None:
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGE] == []


@pytest.mark.full
def test_the_page_prints_what_is_shown(tmp_path: Path) -> None:
    (clean,) = re.findall(r"^    (my key is .*)$", PAGE, re.MULTILINE)
    text = f"{clean} (again: [EMAIL_1]; C-123456)"
    key = "sk-" + "".join(random.Random(3).choices(string.ascii_letters + string.digits, k=40))
    values = {"OPENAI_KEY": key, "EMAIL": MAIL, "PHONE": "+1 415 233 8712", "HOME_PATH": "jdoe7"}
    for kind, value in values.items():
        assert f"[{kind}_1]" in text
        text = text.replace(f"[{kind}_1]", value)
    write_episodes(tmp_path / "stores" / "goto", [told("a", text)], kind="test")
    shown = printed(PAGE, tmp_path, COLUMNS="100")
    assert len(shown) == 3
    assert texts(tmp_path / "stores" / "public") == [f"{clean} (again: [EMAIL_1]; [CUSTOMER_1])"]
    said = "".join(each.output for each in shown)
    assert not [value for value in values.values() if value in said]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "piece", daily(["1.1.1.", "a@b.c ", "eyJaaaaaaaa.eyJ", "://a:", "password=", "/home/a", "+1 "], 3)
)
def test_a_long_text_of_nothing_but_candidates_takes_no_longer_than_another(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert all(span.end <= len(text) for spans in Finder().find([text]).values() for span in spans)


@pytest.mark.full
@pytest.mark.parametrize(
    "piece", daily(["-----BEGIN PRIVATE KEY-----", "a.b@example-mail.com ", "[EMAIL_1] mine "], 2)
)
def test_the_time_for_a_text_full_of_values_grows_with_its_length_alone(piece: str) -> None:
    finder = Finder({"own": re.compile("EMAIL|mine")})

    def cpu_s(n_characters: int) -> float:
        text = piece * (n_characters // len(piece))
        begun = time.process_time()
        assert len(finder.find([text])[text]) == len(text) // len(piece)
        return time.process_time() - begun

    cpu_s(1_000)
    short, long = (min(cpu_s(n) for _ in range(3)) for n in (75_000, 300_000))  # a collection of garbage adds
    assert long < 8 * short + 1  # a quadratic search takes 16 times as long
