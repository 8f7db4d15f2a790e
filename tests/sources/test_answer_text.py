"""The text of a JSON function's answer, however the database spells it: the store has one spelling."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from tests.sources.row_database import RowDatabase
from tests.sources.shapes import Steps
from trajkit.schema import TextBlock
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.export.export import export
from trajkit.store.dataset import open_dataset

# the member `raw` of an output as it is stored, and the text of the answer (None: there is none)
RAW = {
    "plain": ('"go \\"there\\""', 'go "there"'),
    "escapes that the store spells otherwise": ('"a\\/b \\u00e9 \\u0001 \\u2028"', "a/b é \x01 \u2028"),
    "JSON in a text": ('"{\\"action\\":\\"go\\\\n\\"}"', '{"action":"go\\n"}'),
    "empty": ('""', ""),
    "the word null": ('"null"', "null"),
    "null": ("null", None),
    "a number": ("12", "12"),
    "an object": ('{"b": 1, "a": [true]}', '{"b":1,"a":[true]}'),
}


@pytest.mark.parametrize("name", RAW)
def test_an_answer_is_the_text_of_its_output_in_the_stores_spelling(tmp_path: Path, name: str) -> None:
    stored, text = RAW[name]
    steps = Steps()
    steps.json(output=f'{{ "raw": {stored}, "parsed": {{"action": "go"}} }}')
    export(RowDatabase(steps.inferences, steps.calls), ExportRequest(), tmp_path / "store")
    (episode,) = open_dataset(tmp_path / "store")
    (step,) = episode.steps
    assert step.completion is not None
    assert [block.text for block in step.completion.content if isinstance(block, TextBlock)] == (
        [] if text is None else [text]
    )
    assert step.action == "go"
    parts = str(tmp_path / "store" / "steps" / "*.parquet")
    ((written, spelled),) = duckdb.execute(
        f"SELECT completion::VARCHAR, json(completion::VARCHAR)::VARCHAR FROM '{parts}'"
    ).fetchall()
    assert written == spelled
    assert json.loads(written)["role"] == "assistant"


@pytest.mark.parametrize(
    ("parsed", "action", "is_invalid"),
    [
        ('{"action":"go"}', "go", False),
        ('{"action":null}', None, False),
        ('{"action":["go",1]}', ["go", 1], False),
        ('"go"', None, False),
        ("null", None, True),
    ],
)
def test_an_action_is_what_the_parsed_output_says(parsed: str, action: object, is_invalid: bool) -> None:
    steps = Steps()
    steps.json(output=f'{{"raw":"r","parsed":{parsed}}}')
    _, (step,) = steps.export()
    assert step.action == action
    assert step.mask_reason == ("invalid output" if is_invalid else None)
