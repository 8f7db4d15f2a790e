"""The line of JSON mode: found in raw requests by one expression, put before the prompts that need it."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from trajkit.sources.tensorzero.export.texts.json_mode import (
    PREFIX,
    WIRE_PATTERN,
    is_prefixed,
    wire_system,
    with_prefix,
)


def wired(raw_request: Any, *, system: str | None, messages: str = "[{}]") -> str | None:
    raw = raw_request if isinstance(raw_request, str) else json.dumps(raw_request)
    sql = wire_system(f"regexp_matches(raw_request, '{WIRE_PATTERN}')", "input_messages <> ''")
    with duckdb.connect() as connection:
        ((found,),) = connection.execute(
            f"SELECT {sql} FROM (SELECT $raw AS raw_request, $system AS system, $messages AS input_messages)",
            {"raw": raw, "system": system, "messages": messages},
        ).fetchall()
    return found  # type: ignore[no-any-return]


def request(role: str, content: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content}, {"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(("role", "separators"), [("system", (",", ":")), ("developer", (", ", ": "))])
def test_the_line_is_found_in_requests_of_every_shape(role: str, separators: tuple[str, str]) -> None:
    for content in (
        f"{PREFIX}\n\nBe kind.",
        [{"type": "text", "text": f"{PREFIX}\n\nBe kind."}],
        [{"type": "input_text", "text": f"{PREFIX}\n\nBe kind."}],
    ):
        raw = json.dumps(request(role, content), separators=separators)
        assert wired(raw, system="Be kind.") == f"{PREFIX}\n\nBe kind."
        assert wired(raw, system="") == f"{PREFIX}\n\n"
        assert wired(raw, system=None) == PREFIX


def test_a_request_that_only_speaks_of_the_line_is_not_taken_for_one() -> None:
    quoted = json.dumps(request("system", f"{PREFIX} It said so."))
    for raw in (
        request("user", PREFIX),
        request("system", f"Please. {PREFIX}"),
        request("user", quoted),
        request("system", f"Begin with {quoted}"),
        request("system", "Respond using JSON!"),
        "{}",
        "",
    ):
        assert wired(raw, system="Be kind.") == "Be kind."
        assert wired(raw, system=None) is None


def test_a_system_message_that_says_it_already_does_not_say_it_twice() -> None:
    assert wired(request("system", f"{PREFIX} Now."), system=f"{PREFIX} Now.") == f"{PREFIX} Now."


def test_a_prompt_of_which_nothing_was_stored_stays_unknown() -> None:
    assert wired(request("system", PREFIX), system=None, messages="") is None


def test_the_line_stands_only_where_nobody_speaks_of_json() -> None:
    assert with_prefix(None, []) == PREFIX
    assert with_prefix(None, ["as JSON"]) == PREFIX  # only system messages are searched
    assert with_prefix("Be kind.", ["hello"]) == f"{PREFIX}\n\nBe kind."
    assert with_prefix("Be kind.", ["hello", "in Json"]) == "Be kind."
    assert with_prefix("Give me json.", []) == "Give me json."


def test_only_some_servers_are_told_so() -> None:
    assert is_prefixed("openai", json_mode="on")
    assert not is_prefixed("openai", json_mode="strict")
    assert not is_prefixed("openai", json_mode=None)
    assert not is_prefixed("anthropic", json_mode="on")
    assert not is_prefixed(None, json_mode="on")
