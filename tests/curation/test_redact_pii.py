"""Names, places and accounts: presidio itself, with spaCy models that are made here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import spacy

from trajkit.cli.main import run
from trajkit.curation.redact import redact, scan
from trajkit.curation.redaction.pii import ENTITIES, PiiReader
from trajkit.errors import RequestError
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset

CARD = "4111 1111 1111 1111"  # the number that its issuer gives for tests
IBAN = "GB82 WEST 1234 5698 7654 32"  # the example of the standard
MAIL = "joe.doe@corp.io"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of spaCy's as they are on disk, which knows two people and a city by rules."""
    folder = tmp_path_factory.mktemp("model") / "names"
    pipeline = spacy.blank("en")
    rules = pipeline.add_pipe("entity_ruler")
    rules.add_patterns(  # type: ignore[attr-defined]
        [
            {"label": "PERSON", "pattern": [{"LOWER": "jane"}, {"LOWER": "roe"}]},
            {"label": "PERSON", "pattern": "Bob"},
            {"label": "GPE", "pattern": "Lyon"},
            # as if a placeholder was a name
            {"label": "PERSON", "pattern": [{"TEXT": {"REGEX": "PERSON_"}}]},
            {"label": "DATE", "pattern": "Monday"},
        ]
    )
    pipeline.to_disk(folder)
    return str(folder)


def step(index: int, text: str, answer: str = "go") -> Transition:
    return Transition(
        step_index=index, messages=(message("user", text),), completion=message("assistant", answer)
    )


def texts(path: Path) -> list[str]:
    """The message of each step."""
    return [step.messages[0].text for each in open_dataset(path) for step in each.steps]  # type: ignore[index]


def test_names_get_the_same_placeholder_everywhere_and_a_second_pass_finds_nothing(
    model: str, write: Callable[[Iterable[Episode]], Path], tmp_path: Path
) -> None:
    first = step(0, f"Jane Roe of Lyon wrote to {MAIL} on Monday", json.dumps({"to": "Bob", "n": 4}))
    path = write(
        [
            Episode(episode_id="a", source="test", task="Bob", steps=(first, step(1, "thanks, Jane Roe"))),
            Episode(episode_id="b", source="test", steps=(step(0, "nobody"),)),
        ]
    )
    made = redact(path, tmp_path / "clean", pii=model)
    assert texts(tmp_path / "clean") == [
        "[PERSON_1] of [LOCATION_1] wrote to [EMAIL_1] on Monday",
        "thanks, [PERSON_1]",
        "nobody",
    ]
    one = next(iter(open_dataset(tmp_path / "clean")))
    assert json.loads(one.steps[0].completion.text) == {"to": "[PERSON_2]", "n": 4}  # type: ignore[union-attr]
    assert one.task == "Bob", "names of tasks are no prose"
    assert made.report.n_by_kind == {"person": 3, "email": 1, "location": 1}
    assert made.entry.arguments["pii_model"] == "names"
    assert scan(tmp_path / "clean", pii=model).found == ()


@pytest.mark.full
def test_without_a_model_numbers_of_cards_and_accounts_are_found(
    write: Callable[[Iterable[Episode]], Path], tmp_path: Path
) -> None:
    text = f"Jane Roe pays with {CARD} or {IBAN}; order 4111 1111 1111 1112, in 2026"
    path = write([Episode(episode_id="a", source="test", steps=(step(0, text),))])
    assert scan(path).found == (), "not by the shapes"
    redact(path, tmp_path / "clean", pii="none")
    assert texts(tmp_path / "clean") == [
        "Jane Roe pays with [CREDIT_CARD_1] or [IBAN_1]; order 4111 1111 1111 1112, in 2026"
    ]
    assert scan(path, pii="none", skip=["iban"]).n_by_kind == {"credit-card": 1}


@pytest.mark.full
def test_a_long_text_is_read_in_pieces(model: str) -> None:
    text = "Bob goes on. " * 20_000
    spans = PiiReader(model)(text)
    assert len(spans) >= 19_990
    assert {text[span.start : span.end] for span in spans} == {"Bob"}


def test_a_model_that_is_not_here_is_told_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["redact", "sample:babyai", "--pii", "--dry-run"]) == 2
    shown = capsys.readouterr().err
    assert "there is no spaCy model 'en_core_web_lg' on this machine" in shown
    assert "python -m spacy download en_core_web_lg" in shown


def test_a_model_that_finds_no_names_is_refused(tmp_path: Path) -> None:
    spacy.blank("en").to_disk(tmp_path / "empty")
    with pytest.raises(RequestError, match="finds no names"):
        PiiReader(str(tmp_path / "empty"))


def test_kinds_of_presidio_are_kinds_only_where_it_is_asked() -> None:
    with pytest.raises(RequestError, match="no kind 'person'"):
        scan("sample:babyai", skip=["person"])
    with pytest.raises(RequestError, match="cannot be called 'person'"):
        scan("sample:babyai", patterns={"person": "x"}, pii="none")


def test_every_kind_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "redact.md").read_text(encoding="utf-8")
    assert [kind for kind in ENTITIES if f"`{kind}`" not in page] == []
