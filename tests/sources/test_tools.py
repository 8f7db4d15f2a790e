"""Which tools a step had: from its list, from what came with the request, from the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sources.row_database import Row, RowDatabase, spelled
from tests.sources.shapes import Steps
from trajkit.sources.tensorzero.export.config import metrics_of, tools_of

HASH = "0" * 62 + "ab"
SAID = [{"type": "text", "text": "hi"}]


def tool(name: str, **changes: Any) -> Row:
    return {
        "description": f"does {name}",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
        "name": name,
        "strict": False,
    } | changes


CUSTOM = {"type": "openai_custom", "name": "grep", "description": None, "format": {"type": "text"}}
CONFIG = f"""
[functions.talk]
type = "chat"
tools = ["move", "look"]

[metrics.success]
type = "boolean"
optimize = "max"
level = "episode"

[tools.move]
description = "does move"
strict = false

[tools.move.parameters]
__tensorzero_remapped_path = "move.json"
__data = '{spelled(tool("move")["parameters"])}'

[tools.look]
description = "does look"
name = "look_around"

[tools.look.parameters]
__tensorzero_remapped_path = "look.json"
__data = '{spelled(tool("look")["parameters"])}'

[tools.elsewhere]
description = "in a file that is not here"
parameters = "elsewhere.json"
"""
LOOK = tool("look_around", description="does look")


def listed(*tools: Row) -> str:
    return spelled({"tools_available": tools, "tool_choice": "auto", "parallel_tool_calls": None})


def allowed(choice: str, *names: str) -> str:
    return spelled({"tools": names, "choice": choice})


def given(*tools: Row) -> str:
    return spelled([{"type": "function", **one} if "type" not in one else one for one in tools])


# what a row says, and the tools that the step then has
ROWS: dict[str, tuple[Row, list[Row] | None]] = {
    "no tools": ({"tool_params": ""}, None),
    "no tools, null": ({"tool_params": None}, None),
    "a list from before the other columns": ({"tool_params": listed(tool("move"))}, [tool("move")]),
    "a list that is a text in a text": ({"tool_params": spelled(listed(tool("move")))}, [tool("move")]),
    "an empty list": ({"tool_params": listed()}, None),
    "the list": (
        {
            "tool_params": listed(tool("move"), LOOK),
            "allowed_tools": allowed("function_default", "move", "look"),
        },
        [tool("move"), LOOK],
    ),
    "no list: those of the configuration": (
        {"allowed_tools": allowed("function_default", "move", "look")},
        [tool("move"), LOOK],
    ),
    "the list, with one of the request": (
        {
            "tool_params": listed(tool("move"), tool("shout")),
            "dynamic_tools": given(tool("shout")),
            "allowed_tools": allowed("function_default", "move", "shout"),
        },
        [tool("move"), tool("shout")],
    ),
    "no list, with one of the request": (
        {
            "dynamic_tools": given(tool("shout")),
            "allowed_tools": allowed("function_default", "move", "shout"),
        },
        [tool("move"), tool("shout")],
    ),
    "one of the request that does not say its kind, nor that it is not strict": (
        {"dynamic_tools": spelled([{k: v for k, v in tool("shout").items() if k != "strict"}])},
        [tool("shout")],
    ),
    "one of the request under the kind's first name": (
        {"dynamic_tools": given(tool("shout", type="client_side_function"))},
        [tool("shout")],
    ),
    "a custom tool, which the list cannot hold": (
        {
            "tool_params": listed(tool("move")),
            "dynamic_tools": given(CUSTOM),
            "allowed_tools": allowed("function_default", "move", "grep"),
        },
        [tool("move"), CUSTOM],
    ),
    "a custom tool without a list": (
        {"dynamic_tools": given(CUSTOM), "allowed_tools": allowed("function_default", "move", "grep")},
        [tool("move"), CUSTOM],
    ),
    "one allowed of the list": (
        {"tool_params": listed(tool("move"), tool("walk")), "allowed_tools": allowed("explicit", "walk")},
        [tool("walk")],
    ),
    "one allowed that the model knows by another name": (
        {"tool_params": listed(tool("move"), LOOK), "allowed_tools": allowed("explicit", "look")},
        [LOOK],
    ),
    "one allowed of the configuration": ({"allowed_tools": allowed("explicit", "look")}, [LOOK]),
    "one allowed of the request": (
        {"dynamic_tools": given(tool("shout")), "allowed_tools": allowed("explicit", "shout")},
        [tool("shout")],
    ),
    "none allowed": (
        {"tool_params": listed(tool("move")), "allowed_tools": allowed("explicit")},
        None,
    ),
    "the deprecated way to allow: those of the request are allowed too": (
        {"dynamic_tools": given(tool("shout")), "allowed_tools": allowed("dynamic_allowed_tools", "move")},
        [tool("move"), tool("shout")],
    ),
    "one allowed that only the list could name": (
        {"tool_params": listed(tool("move")), "allowed_tools": allowed("explicit", "nobody")},
        [tool("move")],
    ),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    steps = Steps()
    for row, _ in ROWS.values():
        steps.chat(SAID, snapshot_hash=HASH, **row)
    snapshots = [{"snapshot_hash": HASH, "config": CONFIG, "templates": {}}]
    _, made = steps.export(RowDatabase(steps.inferences, steps.calls, snapshots=snapshots))
    return dict(zip(ROWS, made, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_the_tools_of_a_step_are_those_that_the_model_could_call(found: dict[str, Any], name: str) -> None:
    expected = ROWS[name][1]
    assert found[name].mask_reason is None
    assert found[name].tools == (None if expected is None else tuple(expected))


def test_a_step_whose_tools_nobody_knows_is_not_learned() -> None:
    cases = ((None, ["move"]), ("not TOML [", ["move"]), (CONFIG, ["move", "gone"]), (CONFIG, ["elsewhere"]))
    steps, snapshots = Steps(), []
    for number, (config, names) in enumerate(cases):
        steps.chat(SAID, snapshot_hash=f"{number:064x}", allowed_tools=allowed("function_default", *names))
        if config is not None:
            snapshots.append({"snapshot_hash": f"{number:064x}", "config": config, "templates": {}})
    tally, made = steps.export(RowDatabase(steps.inferences, steps.calls, snapshots=snapshots))
    assert [(step.tools, step.mask_reason, step.loss_weight) for step in made] == [
        (None, "tools unknown", 0)
    ] * 4
    assert [(entry.reason, entry.n_steps) for entry in tally.masked] == [("tools unknown", 4)]


@pytest.mark.full
def test_configurations_are_read_only_where_a_row_needs_one() -> None:
    steps = Steps()
    steps.json()
    steps.chat(SAID, tool_params=listed(tool("move")), allowed_tools=allowed("function_default", "move"))
    database = RowDatabase(steps.inferences, steps.calls)
    steps.export(database)
    assert database.n_snapshots_read == 0
    steps.chat(SAID, snapshot_hash=HASH, allowed_tools=allowed("function_default", "move"))
    steps.export(database := RowDatabase(steps.inferences, steps.calls))
    assert database.n_snapshots_read == 1


EXTRAS: dict[str, tuple[Row, dict[str, Any]]] = {
    "usual": ({"tool_choice": "auto"}, {}),
    "a bare word": ({"tool_choice": "required"}, {"tool_choice": "required"}),
    "a word in quotes": ({"tool_choice": '"none"'}, {"tool_choice": "none"}),
    "one tool": ({"tool_choice": '{"specific":"move"}'}, {"tool_choice": {"specific": "move"}}),
    "not in parallel": ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
    "tools of the provider": (
        {"dynamic_provider_tools": '[{"scope":null,"tool":{"type":"web_search"}}]'},
        {"provider_tools": [{"scope": None, "tool": {"type": "web_search"}}]},
    ),
}


def test_how_tools_were_asked_for_stands_beside_them_where_it_was_not_the_usual_way() -> None:
    steps = Steps()
    for row, _ in EXTRAS.values():
        steps.chat(SAID, tool_params=listed(tool("move")), **row)
    _, made = steps.export()
    assert [step.tools for step in made] == [(tool("move"),)] * len(EXTRAS)
    found = dict(zip(EXTRAS, ((step.extra or {}) for step in made), strict=True))
    assert found == {name: {"model_provider_name": "p", **expected} for name, (_, expected) in EXTRAS.items()}


def test_a_configuration_says_its_tools_and_metrics() -> None:
    assert tools_of(CONFIG) == {"move": tool("move"), "look": LOOK}
    assert metrics_of(CONFIG)["success"] == ("boolean", "episode", "max")
    assert tools_of("[") == {}
    assert metrics_of("[") == {}
    broken = '[tools.x]\ndescription = ""\n[tools.x.parameters]\n__data = "{"\n'
    assert tools_of(broken) == {}
