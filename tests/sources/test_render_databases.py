"""Prompts rendered anew, and the line of JSON mode, are the same from ClickHouse, Postgres and an archive."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.sources import generated
from tests.sources.conftest import exported
from trajkit.schema import Message
from trajkit.sources.tensorzero.archive.copying import archive
from trajkit.sources.tensorzero.archive.dialect import open_archive
from trajkit.sources.tensorzero.archive.origin import ClickHouseOrigin
from trajkit.sources.tensorzero.connect.database import open_database
from trajkit.store.dataset import open_dataset

pytest.importorskip("minijinja", reason="pip install 'trajkit[render]'")

LINE = "Respond using JSON."
VARIANTS = """
[models.m]
routing = ["p"]
providers.p.type = "openai"
[functions.act.variants.anew]
type = "chat_completion"
model = "m"
json_mode = "on"
[functions.act.variants.anew.templates.system.path]
__tensorzero_remapped_path = "system.minijinja"
__data = "New: {{ mission }}"
[functions.act.variants.anew.templates.user.path]
__tensorzero_remapped_path = "user.minijinja"
__data = "{% include 'a/system' %} {{ observation }} {{ history|tojson }} {{ history }}"
[functions.talk.variants.anew]
type = "chat_completion"
model = "m"
[functions.plain.variants.anew]
type = "chat_completion"
model = "m"
"""


@pytest.fixture(scope="module")
def opened(
    clickhouse_of: Callable[[str, Any], str],
    postgres_of: Callable[[str, Any], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Callable[[], Any]]:
    """The three places of one set of rows."""
    data = generated.generated(seed=3, n_episodes=40)
    for number, snapshot in enumerate(data.snapshots):
        # the second of them is the newest, and the only one that has the variant
        snapshot["config"] += VARIANTS if number == 1 else ""
        snapshot["extra_templates"]["a/system"] = "{% set n = 1 %}[{{ n }}]"
    for number, call in enumerate(data.model_inferences):
        if call["function_name"] == "act" and number % 3 == 0:
            call["raw_request"] = json.dumps(
                {"messages": [{"role": "system", "content": f"{LINE}\n\n{call['system']}"}]}
            )
    clickhouse, postgres = clickhouse_of("rendered", data), postgres_of("rendered", data)
    folder = tmp_path_factory.mktemp("archive") / "rendered"
    with contextlib.closing(ClickHouseOrigin(clickhouse)) as origin:
        archive(origin, folder)
    return {
        "clickhouse": lambda: open_database(clickhouse),
        "postgres": lambda: open_database(postgres),
        "archive": lambda: open_archive(folder),
    }


def digests(opened: dict[str, Callable[[], Any]], folder: Path, **options: Any) -> set[str]:
    """The digests of one export from each place, whose stores are in `folder`."""
    found = set()
    for kind, database in opened.items():
        options |= {"as_of": datetime(2027, 1, 1, tzinfo=UTC), "include_invalid": True}
        found.add(exported(database(), folder / kind, **options)[1].digest)
    return found


def systems(folder: Path) -> list[str]:
    """The system messages of the function with templates; '' where there is none."""
    found = []
    for episode in open_dataset(folder):
        for step, prompt in zip(episode.steps, episode.prompts(), strict=True):
            if step.function_name == "act" and prompt:
                found.append(_text(prompt[0]) if prompt[0].role == "system" else "")
    return found


def _text(message: Message) -> str:
    return "".join(getattr(block, "text", None) or "" for block in message.content)


@pytest.mark.full
def test_the_line_of_json_mode_is_read_from_every_place(opened: Any, tmp_path: Path) -> None:
    assert len(digests(opened, tmp_path)) == 1
    found = systems(tmp_path / "postgres")
    n_with_line = sum(system.startswith(f"{LINE}\n\nYou play.") for system in found)
    assert 0 < n_with_line < len(found)
    assert {system.removeprefix(f"{LINE}\n\n")[:9] for system in found} == {"You play."}


def test_prompts_rendered_from_every_place_are_the_same(opened: Any, tmp_path: Path) -> None:
    assert len(digests(opened, tmp_path, template_variant="anew")) == 1
    texts = [
        _text(prompt[-1])
        for episode in open_dataset(tmp_path / "archive")
        for step, prompt in zip(episode.steps, episode.prompts(), strict=True)
        if step.function_name == "act" and prompt
    ]
    assert sum('["x",{"k":1}] ["x", {"k": 1}]' in text and text.startswith("[1] ") for text in texts) > 20
    assert set(systems(tmp_path / "archive")) == {f"{LINE}\n\nNew: m"}
