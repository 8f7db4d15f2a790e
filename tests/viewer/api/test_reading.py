"""One episode: every shape of step, prompts put together again, and long texts cut and given in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.viewer.api.conftest import Client
from tests.viewer.api.stores import HOSTILE, conversation, episode, step
from trajkit.schema import Message, message
from trajkit.schema.content import ToolCallBlock, ToolResultBlock, UnknownBlock
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes
from trajkit.viewer.server import PageServer
from trajkit.viewer.shelf import Shelf

LONG = "".join(
    chr(0x1F600 + i % 40) + f" {i}\n" for i in range(200_000)
)  # of several pieces, not of one plane


def _said(shown: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (each["role"], [{k: v for k, v in b.items() if v is not None} for b in each["blocks"]])
        for each in shown
    ]


def _stored(messages: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (str(each.role), [b.model_dump(mode="json", exclude_none=True) for b in each.content])
        for each in messages
    ]


def test_an_episode_comes_with_its_steps_feedback_and_twins(client: Any) -> None:
    found = client.ask("episode", store=0, id="ep-3")
    assert [one["index"] for one in found["steps"]] == [0, 1, 2, 3]
    first = found["steps"][0]
    assert first["observation"] == "a red ball 0 steps forward"
    assert (first["action"], first["valid"], first["reward"], first["loss_weight"]) == (
        "go forward",
        True,
        0.0,
        1.0,
    )
    assert _said(first["new_messages"]) == [
        ("system", [{"type": "text", "text": "Play."}]),
        ("user", [{"type": "text", "text": "turn 0"}]),
    ]
    assert [item["value"] for item in found["feedback"]] == [0.3]
    assert [(twin["store"], twin["id"]) for twin in found["twins"]] == [(1, "after-3")]
    assert found["tags"] == {"level": "0"}
    assert found["next"] is None


def test_one_id_in_two_stores_is_two_episodes_and_each_other_s_twin(client: Any) -> None:
    before, after = (client.ask("episode", store=store, id="ep-0") for store in (0, 1))
    assert (before["variant"], after["variant"]) == ("baseline", "tuned")
    assert [(twin["store"], twin["id"]) for twin in before["twins"]] == [(1, "ep-0")]
    assert [(twin["store"], twin["id"]) for twin in after["twins"]] == [(0, "ep-0")]


def test_tools_thoughts_and_several_agents_are_shown(client: Any) -> None:
    found = client.ask("episode", store=2, id="talk")
    assert [one["agent_name"] for one in found["steps"]] == ["left", "right", "left", "right"]
    assert found["steps"][1]["n_kept"] == 3
    answer = found["steps"][0]["completion"]["blocks"]
    assert [block["type"] for block in answer] == ["thought", "text", "tool_call"]
    assert answer[2]["arguments"] == '{"at": "the \\"door\\""}'
    assert found["steps"][0]["tools"][0]["name"] == "look"
    assert found["steps"][0]["info"] == {"battery": 0.5}
    assert found["twins"] == []
    assert found["reward"] is None


def test_a_prompt_is_put_together_as_the_store_does(client: Any) -> None:
    whole = conversation()
    for index in range(whole.n_steps):
        found = client.ask("messages", store=2, id="talk", step=index)
        assert _said(found["messages"]) == _stored(whole.prompt(index) or ())
        assert found["n_messages"] == len(found["messages"]) == 2 + 2 * index
    piece = client.ask("messages", store=2, id="talk", step=3, offset=2, limit=3)
    assert _said(piece["messages"]) == _stored((whole.prompt(3) or ())[2:5])
    assert (piece["offset"], piece["next"]) == (2, 5)


def test_every_prompt_of_the_sample_is_that_of_the_dataset() -> None:
    dataset = open_dataset("sample:babyai")
    with Shelf(["sample:babyai"]) as shelf, PageServer(shelf) as server:
        asker = Client(server)
        for whole in dataset.limit(3):
            last = whole.n_steps - 1
            found = asker.ask("messages", id=whole.episode_id, step=last)
            assert _said(found["messages"]) == _stored(whole.prompt(last) or ())


def test_what_is_not_known_is_null_and_what_is_empty_is_empty(client: Any) -> None:
    assert client.ask("episode", store=2, id="empty")["steps"] == []
    found = client.ask("episode", store=2, id=HOSTILE)
    masked, unprompted = found["steps"]
    assert (masked["completion"], masked["loss_weight"], masked["mask_reason"]) == (None, 0.0, "not selected")
    assert [block["type"] for block in masked["new_messages"][0]["blocks"]] == ["text", "file", "unknown"]
    assert (unprompted["new_messages"], unprompted["valid"], unprompted["terminated"]) == (None, False, True)
    assert client.ask("messages", store=2, id=HOSTILE, step=1)["messages"] is None
    assert found["outline"] == {"rewards": [0.0, 0.0], "valid": [True, False], "weights": [0.0, 1.0]}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server of two episodes: one whose texts are too long to be sent at once, one of many steps."""
    folder = tmp_path_factory.mktemp("long") / "store"
    result = ToolResultBlock(id="c", name="cat", result=LONG)
    call = ToolCallBlock(id="c", name="cat", arguments=LONG)
    strange = UnknownBlock(data={"deep": LONG})
    steps = [
        step(
            0,
            messages=(message("user", LONG), Message(role="tool", content=(result, strange))),
            completion=Message(role="assistant", content=(call,)),
            info={"log": LONG},
            observation=LONG,
        ),
        step(1, n_prompt_kept=3, messages=(message("user", "and now?"),)),
    ]
    many = [step(index, observation="x" * 19_000) for index in range(450)]
    write_episodes(
        folder, [episode("long", steps=steps, origin={"log": LONG}), episode("many", steps=many)], kind="test"
    )
    with Shelf([folder]) as shelf, PageServer(shelf) as server:
        yield Client(server)


def _pieces(client: Client, cut: dict[str, Any], name: str = "long") -> str:
    text, at = "", 0
    while at is not None:
        where = {} if cut["step"] is None else {"step": cut["step"]}
        piece = client.ask("text", store=0, id=name, path=cut["path"], offset=at, **where)
        assert piece["offset"] == at
        assert piece["n_characters"] == cut["n_characters"]
        assert len(piece["text"]) <= 200_000
        text, at = text + piece["text"], piece["next"]
    return text


@pytest.mark.full
def test_a_long_text_is_cut_and_its_pieces_add_up_to_the_whole(long: Client) -> None:
    reply = long.reply("episode", id="long")
    assert len(reply.body) < 1_000_000
    first = reply.json["steps"][0]
    said, tool = (each["blocks"] for each in first["new_messages"])
    for block, field in (
        (said[0], "text"),
        (tool[0], "result"),
        (first["completion"]["blocks"][0], "arguments"),
    ):
        assert block[field] == LONG[: block["cut"]["next"]]
        assert block["cut"]["n_characters"] == len(LONG)
        assert _pieces(long, block["cut"]) == LONG


@pytest.mark.full
def test_a_message_of_fifty_megabytes_opens_and_ends_where_it_does(tmp_path: Path) -> None:
    n = 50 * 1024 * 1024
    steps = [step(0, messages=(message("user", "0123456789abcde\n" * (n // 16)),))]
    write_episodes(tmp_path / "store", [episode("huge", steps=steps)], kind="test")
    with Shelf([tmp_path / "store"]) as shelf, PageServer(shelf) as server:
        client = Client(server)
        reply = client.reply("episode", id="huge")
        assert len(reply.body) < 100_000
        cut = reply.json["steps"][0]["new_messages"][0]["blocks"][0]["cut"]
        assert cut["n_characters"] == n
        last = client.ask("text", store=0, id="huge", step=0, path=cut["path"], offset=n - 20)
        assert (last["text"], last["next"]) == ("cde\n0123456789abcde\n", None)


@pytest.mark.full
def test_other_values_that_are_long_are_cut_and_read_in_pieces_too(long: Client) -> None:
    found = long.ask("episode", id="long")
    first = found["steps"][0]
    assert _pieces(long, first["observation"]["cut"]) == LONG
    for value in (first["info"], first["new_messages"][1]["blocks"][1]["data"], found["origin"]):
        whole = _pieces(long, value["cut"])
        assert whole.startswith(value["text"])
        assert whole.count("\\n") == LONG.count("\n")  # it is JSON


@pytest.mark.full
def test_a_cut_text_of_a_prompt_says_which_step_holds_it(long: Client) -> None:
    found = long.ask("messages", id="long", step=1)
    cuts = [block["cut"] for each in found["messages"] for block in each["blocks"] if "cut" in block]
    assert [(cut["step"], cut["path"]) for cut in cuts] == [
        (0, "messages/0/content/0/text"),
        (0, "messages/1/content/0/result"),
        (0, "completion/content/0/arguments"),
    ]
    assert all(_pieces(long, cut) == LONG for cut in cuts)


def test_many_steps_come_in_pages_that_add_up(long: Client) -> None:
    seen, at = [], 0
    while at is not None:
        reply = long.reply("episode", id="many", offset=at)
        assert len(reply.body) < 6_000_000
        seen += [one["index"] for one in reply.json["steps"]]
        at = reply.json["next"]
    assert seen == list(range(450))
    assert len(long.ask("episode", id="many", limit=3)["outline"]["rewards"]) == 450
    assert "outline" not in long.ask("episode", id="many", offset=3, limit=3)


def test_what_is_not_there_is_said(client: Any) -> None:
    for name, words, said in (
        ("episode", {"store": 0, "id": "no"}, "no episode 'no' in ten"),
        ("episode", {"store": 9, "id": "ep-0"}, "there is no store 9"),
        ("messages", {"store": 0, "id": "ep-0", "step": 1}, "there is no step 1"),
        (
            "text",
            {"store": 0, "id": "ep-0", "step": 0, "path": "messages/9/content/0/text"},
            "there is no text at",
        ),
        ("text", {"store": 0, "id": "ep-0", "step": 0, "path": "../../manifest.json"}, "there is no text at"),
        ("text", {"store": 0, "id": "ep-0", "path": "source/x"}, "there is no text at"),
    ):
        reply = client.reply(name, **words)
        assert reply.status == 404
        assert said in reply.json["error"]


def test_a_part_of_the_store_that_goes_away_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_episodes(tmp_path / "store", [episode("one")], kind="test")
    with Shelf([tmp_path / "store"]) as shelf, PageServer(shelf) as server:
        shelf.wait()
        next((tmp_path / "store" / "steps").iterdir()).unlink()
        reply = Client(server).reply("episode", id="one")
    assert reply.status == 500
    assert "could not be read" in reply.json["error"]
