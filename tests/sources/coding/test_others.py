"""Codex, OpenCode and pi: branches, summaries, damage, and what stands beside the conversation."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.sources.coding.recorded import answers, unpacked
from tests.sources.files.test_mutations import changed
from tests.sources.reading import Reader, written
from trajkit.errors import DataError, RequestError
from trajkit.schema import Episode, FileBlock, ThoughtBlock, ToolCallBlock
from trajkit.sources.catalog import recognised, source_named
from trajkit.sources.coding.lines import CUT_LINE, NO_ANSWER
from trajkit.sources.files.found import Found


def found(name: str, place: Path) -> list[Found]:
    return Reader(source_named(name)).found(place)


def episodes(name: str, place: Path) -> list[Episode]:
    return Reader(source_named(name)).session(place)


def texts(episode: Episode) -> list[list[str]]:
    return [[message.text for message in prompt or ()] for prompt in episode.prompts()]


# Codex


def meta(name: str = "c1", **more: Any) -> dict[str, Any]:
    base = {"id": name, "cwd": "/home/ana/app", "cli_version": "0.50.0", "git": {"branch": "main"}}
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {**base, **more}}


def item(second: int, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{second:02d}Z", "type": "response_item", "payload": payload}


def said(second: int, role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, type="message", role=role, content=[{"type": kind, "text": words}])


def event(second: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{second:02d}Z",
        "type": "event_msg",
        "payload": {"type": kind, **payload},
    }


def test_codex_turns_that_were_rolled_back_are_a_branch(tmp_path: Path) -> None:
    lines = [meta()]
    for number, words in enumerate(("one", "two", "three")):
        if words == "three":
            lines.append(event(20, "thread_rolled_back", num_turns=1))
        lines += [
            event(10 * number, "task_started", turn_id=f"t{number}"),
            said(10 * number, "user", words),
            said(10 * number + 1, "assistant", f"did {words}"),
        ]
    main, branch = episodes("codex", written(tmp_path / "rollout-1.jsonl", lines))
    assert (answers(main), answers(branch)) == (["did one", "did three"], ["did two"])
    assert texts(main)[1] == ["one", "did one", "three"]
    assert branch.episode_id == "c1/branch-1"
    assert (main.origin or {})["git_branch"] == "main"


def test_codex_tokens_of_older_versions_come_after_the_result(tmp_path: Path) -> None:
    usage = {"input_tokens": 7, "output_tokens": 2}
    lines = [
        meta(instructions="Be brief."),
        said(1, "user", "go"),
        item(2, type="custom_tool_call", call_id="p", name="apply_patch", input="*** Begin Patch"),
        item(3, type="custom_tool_call_output", call_id="p", output="ok"),
        event(3, "token_count", info={"last_token_usage": usage}),
        event(4, "token_count", info={"last_token_usage": usage}),
        event(4, "token_count", info=None),
        said(5, "assistant", "done"),
        event(6, "turn_aborted", reason="interrupted"),
        said(7, "user", "again"),
        event(8, "error", message="no route"),
    ]
    (main,) = episodes("codex", written(tmp_path / "rollout-1.jsonl", lines))
    first, second, third = main.steps
    assert (first.n_input_tokens, first.n_output_tokens, second.n_input_tokens) == (7, 2, None)
    assert first.completion is not None
    (patch, _) = first.completion.content
    assert isinstance(patch, ToolCallBlock)
    assert (patch.name, patch.arguments) == ("apply_patch", "*** Begin Patch")
    assert texts(main)[0] == ["Be brief.", "go"]
    assert third.extra is not None
    assert (third.extra["error"], third.extra["turn_aborted"]) == ("no route", {"reason": "interrupted"})


def test_codex_agents_of_agents_are_linked_and_images_are_files(tmp_path: Path) -> None:
    def spawned(by: str) -> dict[str, Any]:
        return {"source": {"subagent": {"thread_spawn": {"parent_thread_id": by, "depth": 1}}}}

    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    for name, more in (("c3", spawned("c2")), ("c1", {}), ("c2", spawned("c1"))):
        look = item(1, type="message", role="user", content=[image])
        written(tmp_path / f"rollout-{name}.jsonl", [meta(name, **more), look, said(2, "assistant", name)])
    found_ones = {one.episode_id: one for one in episodes("codex", tmp_path)}
    assert {name: (one.origin or {}).get("parent_episode_id") for name, one in found_ones.items()} == {
        "c1": None,
        "c1/c2": "c1",
        "c1/c3": "c1/c2",
    }
    assert isinstance((found_ones["c1"].steps[0].messages or ())[0].content[0], FileBlock)


def test_codex_a_file_without_its_header_is_refused_and_a_cut_one_read(tmp_path: Path) -> None:
    bad = written(tmp_path / "rollout-1.jsonl", [said(1, "user", "go")])
    (one,) = found("codex", bad)
    assert one.problem is not None
    assert one.problem.kind.startswith("not a session of Codex")
    good = written(tmp_path / "rollout-1.jsonl", [meta(), said(1, "user", "go"), said(2, "assistant", "ok")])
    with good.open("a") as file:
        file.write('{"timestamp": "20')
    (one,) = found("codex", good)
    assert CUT_LINE in one.missing


# pi


def entry(entry_id: str, above: str | None, kind: str = "message", **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": entry_id, "parentId": above, "timestamp": "2026-01-01T00:00:00Z", **more}


def spoke(name: str, above: str | None, role: str, words: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": words}]
    return entry(name, above, message={"role": role, "content": content, **more})


HEADER = {
    "type": "session",
    "version": 3,
    "id": "p1",
    "cwd": "/home/ana/app",
    "timestamp": "2026-01-01T00:00:00Z",
}


def test_pi_branches_summaries_and_commands_of_the_user(tmp_path: Path) -> None:
    run = {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 1}
    hidden = {**run, "excludeFromContext": True}
    lines = [
        HEADER,
        spoke("u1", None, "user", "one"),
        spoke("a1", "u1", "assistant", "did one", stopReason="stop"),
        spoke("u2", "a1", "user", "two"),
        spoke("a2", "u2", "assistant", "did two", stopReason="stop"),
        entry("b", "a1", "branch_summary", summary="two was tried", fromId="a2"),
        entry("x", "b", message=run),
        entry("y", "x", message=hidden),
        spoke("u3", "y", "user", "three"),
        spoke("a3", "u3", "assistant", "did three", stopReason="stop"),
        entry("c", "a3", "compaction", summary="all of it", firstKeptEntryId="u3", tokensBefore=9),
        entry("i", "c", "custom_message", content="a hint", customType="mine"),
        spoke("u4", "i", "user", "four"),
        spoke("a4", "u4", "assistant", "half", stopReason="aborted"),
        entry("n", "a4", "session_info", name="Numbers"),
    ]
    main, branch = episodes("pi", written(tmp_path / "s.jsonl", lines))
    assert answers(branch) == ["did two"]
    assert (branch.origin or {})["branch"] == {"leaves_after": "a1", "n_calls_before": 1}
    second, third = texts(main)[1:]
    assert second[0:2] == ["one", "did one"]
    assert "two was tried" in second[2]
    assert second[3:] == ["Ran `ls`\n```\na\n```\n\nCommand exited with code 1", "three"]
    assert "all of it" in third[0]
    assert third[1:] == ["three", "did three", "a hint", "four"]
    last = main.steps[2]
    assert (last.n_prompt_kept, last.finish_reason) == (0, "aborted")
    assert last.extra is not None
    assert (last.extra["error"], last.extra["compaction"]["tokensBefore"]) == ("aborted", 9)
    assert (main.origin or {})["title"] == "Numbers"


def test_pi_a_version_that_is_not_known_and_a_role_that_is_not_known_fail(tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", [{**HEADER, "version": 4}])
    (one,) = found("pi", path)
    assert one.problem is not None
    assert (one.problem.kind, one.problem.value) == ("a version of pi's format after 3", "4")
    (one,) = found("pi", written(path, [HEADER, spoke("u", None, "oracle", "hm")]))
    assert one.problem is not None
    assert (one.place, one.problem.where) == ("s.jsonl:2", "message.role")


def test_pi_a_list_of_version_1_is_read(tmp_path: Path) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    lines: list[dict[str, Any]] = [
        {"type": "session", "id": "p1", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/home/ana"},
        {
            "type": "message",
            "timestamp": "2026-01-01T00:00:00Z",
            "message": {"role": "user", "content": [image]},
        },
        {
            "type": "message",
            "timestamp": "2026-01-01T00:00:01Z",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "seen"}]},
        },
    ]
    (main,) = episodes("pi", written(tmp_path / "s.jsonl", lines))
    assert answers(main) == ["seen"]
    assert isinstance((main.steps[0].messages or ())[0].content[0], FileBlock)


# OpenCode


def database(path: Path, messages: Sequence[tuple[str, dict[str, Any], Sequence[dict[str, Any]]]]) -> Path:
    with closing(sqlite3.connect(path)) as file:
        file.executescript(
            "CREATE TABLE session (id, parent_id, directory, title, version, time_created);"
            "CREATE TABLE message (id, session_id, time_created, data);"
            "CREATE TABLE part (id, message_id, session_id, data);"
            "INSERT INTO session VALUES ('o1', NULL, '/home/ana', 'A title', '1.0.0', 1);"
        )
        for number, (name, message, parts) in enumerate(messages):
            file.execute("INSERT INTO message VALUES (?, 'o1', ?, ?)", (name, number, json.dumps(message)))
            for place, part in enumerate(parts):
                row = (f"{name}-{place:03d}", name, json.dumps(part))
                file.execute("INSERT INTO part VALUES (?, ?, 'o1', ?)", row)
        file.commit()
    return path


def test_opencode_a_message_with_several_steps_is_several_calls(tmp_path: Path) -> None:
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"}
    tool = {"type": "tool", "tool": "bash", "callID": "x"}
    steps = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm"},
        {**tool, "state": {"status": "error", "input": {"command": "ls"}, "error": "denied"}},
        {"type": "step-finish", "reason": "tool-calls", "tokens": {"input": 5, "output": 1}, "cost": 0.5},
        {"type": "step-start"},
        {"type": "text", "text": "done"},
        {"type": "patch", "hash": "abc"},
        {"type": "step-finish", "reason": "stop", "tokens": {"input": 9, "output": 2}, "cost": 0.25},
    ]
    ignored = {"type": "text", "text": "not sent", "ignored": True}
    user = [{"type": "text", "text": "look"}, ignored, image]
    place = database(
        tmp_path / "opencode.db",
        [
            ("m1", {"role": "user"}, user),
            ("m2", {"role": "assistant", "modelID": "m", "agent": "build"}, steps),
        ],
    )
    (main,) = episodes("opencode", place)
    first, second = main.steps
    assert [(s.n_input_tokens, s.n_output_tokens, s.cost_usd, s.finish_reason) for s in main.steps] == [
        (5, 1, 0.5, "tool-calls"),
        (9, 2, 0.25, "stop"),
    ]
    assert first.observation == "look"
    assert isinstance((first.messages or ())[0].content[1], FileBlock)
    assert first.completion is not None
    assert isinstance(first.completion.content[0], ThoughtBlock)
    assert second.observation == "denied"
    assert second.extra is not None
    assert second.extra["parts"] == [{"type": "patch", "hash": "abc"}]


def test_opencode_a_failed_answer_is_in_no_later_prompt_unless_it_was_stopped(tmp_path: Path) -> None:
    half = [{"type": "text", "text": "half"}]
    failed = {"role": "assistant", "error": {"name": "APIError", "data": {"message": "busy"}}}
    stopped = {"role": "assistant", "error": {"name": "MessageAbortedError", "data": {}}}
    ask = [{"type": "text", "text": "go"}]
    messages = [("m1", {"role": "user"}, ask), ("m2", failed, half), ("m3", stopped, half)]
    place = database(tmp_path / "opencode.db", [*messages, ("m4", {"role": "assistant"}, half)])
    (main,) = episodes("opencode", place)
    assert texts(main) == [["go"], ["go"], ["go", "half"]]
    assert [(step.extra or {}).get("error") for step in main.steps] == [
        "APIError: busy",
        "MessageAbortedError",
        None,
    ]


def test_opencode_what_is_no_database_of_it_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"there is no opencode\.db"):
        found("opencode", tmp_path)
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE session (id, title)")
    with pytest.raises(
        DataError, match="the table session has no column directory, parent_id, time_created, version"
    ):
        found("opencode", path)
    path.write_bytes(b"no database at all, but long enough to be looked at" * 20)
    with pytest.raises(DataError, match="cannot be read"):
        found("opencode", path)
    path.unlink()
    database(path, [("m1", {"role": "user"}, [])])
    assert [one.aside for one in found("opencode", path)] == [NO_ANSWER]
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE message SET data = '{'")
        file.commit()
    (one,) = found("opencode", path)
    assert one.problem is not None
    assert (one.place, one.problem.where) == ("opencode.db:o1", "m1")


# all


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode", "pi"])
def test_sessions_are_recognised_and_the_default_place_is_the_program_s(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recognised(str(unpacked(name, tmp_path))) == name
    monkeypatch.setenv("HOME", "/home/ana")
    variables = {
        "claude-code": ("CLAUDE_CONFIG_DIR", "/home/ana/.claude/projects", "/x/projects"),
        "codex": ("CODEX_HOME", "/home/ana/.codex/sessions", "/x/sessions"),
        "opencode": (
            "XDG_DATA_HOME",
            "/home/ana/.local/share/opencode/opencode.db",
            "/x/opencode/opencode.db",
        ),
        "pi": ("PI_CODING_AGENT_DIR", "/home/ana/.pi/agent/sessions", "/x/sessions"),
    }
    variable, usual, moved = variables[name]
    monkeypatch.delenv(variable, raising=False)
    assert str(source_named(name).default_place()) == usual
    monkeypatch.setenv(variable, "/x")
    assert str(source_named(name).default_place()) == moved
    assert source_named(name).is_personal


@pytest.mark.full
@pytest.mark.parametrize("name", ["claude-code", "codex", "pi"])
def test_odd_values_are_problems_and_no_other_error(name: str, tmp_path: Path) -> None:
    chance = random.Random(11)
    files = sorted(unpacked(name, tmp_path).rglob("*.jsonl"))
    whole = {path: path.read_text().splitlines() for path in files}
    for _ in range(25):
        path = chance.choice(files)
        lines = list(whole[path])
        at = chance.randrange(len(lines))
        lines[at] = json.dumps(changed(json.loads(lines[at]), chance))
        path.write_text("\n".join(lines) + "\n")
        for one in found(name, tmp_path / "sessions"):
            assert one.problem is not None or one.aside is not None or one.reading is not None
        path.write_text("\n".join(whole[path]) + "\n")
