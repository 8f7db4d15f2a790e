"""Claude Code: branches, agents of older versions, damage, and what stands beside the conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.sources.coding.recorded import answers, unpacked
from tests.sources.reading import Reader, written
from trajkit.schema import Episode, FileBlock, ToolResultBlock
from trajkit.sources.catalog import recognised
from trajkit.sources.coding.claude_code import SOURCE
from trajkit.sources.coding.lines import CUT_LINE, NO_ANSWER, NO_SYSTEM_PROMPT


def line(name: str, parent: str | None, second: int, message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "assistant" if message["role"] == "assistant" else "user",
        "uuid": name,
        "parentUuid": parent,
        "sessionId": "s",
        "version": "2.0.14",
        "cwd": "/home/ana/app",
        "gitBranch": "main",
        "timestamp": f"2026-01-01T00:00:{second:02d}.000Z",
        "message": message,
        **more,
    }


def user(name: str, parent: str | None, second: int, content: Any, **more: Any) -> dict[str, Any]:
    return line(name, parent, second, {"role": "user", "content": content}, **more)


def answer(name: str, parent: str, second: int, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {
        "role": "assistant",
        "id": more.pop("message_id", f"msg_{name}"),
        "model": "claude",
        "content": list(content),
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 5},
    }
    return line(name, parent, second, message, **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": name}}


def result(name: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": name, "content": f"did {name}"}]


def write(folder: Path, lines: Sequence[dict[str, Any]], name: str = "s.jsonl") -> Path:
    return written(folder / name, lines)


found, episodes = Reader(SOURCE).found, Reader(SOURCE).session


def session(folder: Path, *lines: dict[str, Any]) -> list[Episode]:
    write(folder, lines)
    return episodes(folder)


def texts(episode: Episode) -> list[list[str]]:
    return [
        [
            message.text or "+".join(b.result for b in message.content if isinstance(b, ToolResultBlock))
            for message in prompt or ()
        ]
        for prompt in episode.prompts()
    ]


def test_an_edited_message_makes_a_branch_that_has_only_its_own_answers(tmp_path: Path) -> None:
    main, branch = session(
        tmp_path,
        user("u1", None, 0, "hello"),
        answer("a1", "u1", 1, text("hi")),
        user("u2", "a1", 2, "first wish"),
        answer("a2", "u2", 3, text("first deed")),
        user("u3", "a1", 4, "second wish"),
        answer("a3", "u3", 5, text("second deed")),
    )
    assert (main.episode_id, branch.episode_id) == ("s", "s/branch-1")
    assert answers(main) == ["hi", "second deed"]
    assert answers(branch) == ["first deed"]
    assert texts(branch) == [["hello", "hi", "first wish"]]
    assert branch.origin is not None
    assert branch.origin["parent_episode_id"] == "s"
    assert branch.origin["branch"] == {"leaves_after": "a1", "n_calls_before": 1}
    assert [step.n_prompt_kept for step in main.steps] == [0, 2]


def test_the_last_path_is_the_episode_even_if_it_is_shorter(tmp_path: Path) -> None:
    long = [user("u1", None, 0, "go")]
    for n in range(3):
        long.append(answer(f"a{n}", long[-1]["uuid"], 2 * n + 1, text(f"old {n}")))
        long.append(user(f"w{n}", f"a{n}", 2 * n + 2, "more"))
    main, branch = session(
        tmp_path, *long, user("u9", None, 20, "again"), answer("a9", "u9", 21, text("new"))
    )
    assert (answers(main), answers(branch)) == (["new"], ["old 0", "old 1", "old 2"])


def test_lines_of_one_message_are_one_answer_and_results_of_one_answer_no_branches(tmp_path: Path) -> None:
    (main,) = session(
        tmp_path,
        user("u1", None, 0, "go"),
        answer("a1", "u1", 1, text("two at once"), message_id="m"),
        answer("a2", "a1", 2, call("one"), message_id="m"),
        user("r1", "a2", 3, result("one")),
        answer("a3", "a2", 4, call("two"), message_id="m"),
        user("r2", "a3", 5, result("two")),
        answer("a4", "r2", 6, text("done")),
    )
    assert texts(main) == [["go"], ["go", "two at once", "did one", "did two"]]
    assert main.steps[0].action == [
        {"name": "Bash", "arguments": {"command": "one"}},
        {"name": "Bash", "arguments": {"command": "two"}},
    ]
    assert (main.steps[0].n_input_tokens, main.steps[0].n_output_tokens) == (43, 5)
    assert main.steps[0].latency_s == 4.0
    assert main.steps[0].inference_id == "m"
    names = {
        b.name for one in main.steps[1].messages or () for b in one.content if isinstance(b, ToolResultBlock)
    }
    assert names == {"Bash"}


def test_a_summary_begins_a_new_prompt_with_the_messages_that_stay(tmp_path: Path) -> None:
    kept = {"trigger": "auto", "preservedMessages": {"anchorUuid": "u2", "uuids": ["a1"]}}
    boundary = user("b", None, 2, "", logicalParentUuid="a1", compactMetadata=kept)
    boundary |= {"type": "system", "subtype": "compact_boundary"}
    (main,) = session(
        tmp_path,
        user("u1", None, 0, "long talk"),
        answer("a1", "u1", 1, text("long answer")),
        boundary,
        user("u2", "b", 3, "in short", isCompactSummary=True),
        user("u3", "u2", 4, "go on"),
        answer("a2", "u3", 5, text("on")),
    )
    assert texts(main) == [["long talk"], ["in short", "long answer", "go on"]]
    assert main.steps[1].n_prompt_kept == 0
    assert main.steps[1].extra is not None
    assert main.steps[1].extra["compaction"]["trigger"] == "auto"


def test_agents_of_older_versions_are_linked_with_their_session(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": "help"}}
    done = user("r1", "a1", 4, result("t"), toolUseResult={"agentId": "abc"})
    write(
        tmp_path,
        [user("u1", None, 0, "go"), answer("a1", "u1", 1, use), done, answer("a2", "r1", 5, text("ok"))],
    )
    side = {"isSidechain": True, "agentId": "abc"}
    agent = [user("x1", None, 2, "help", **side), answer("y1", "x1", 3, text("helped"), **side)]
    write(tmp_path, agent, "agent-abc.jsonl")
    main, helper = episodes(tmp_path)
    assert (main.episode_id, helper.episode_id) == ("s", "s/abc")
    assert helper.origin is not None
    assert helper.origin["parent_episode_id"] == "s"
    assert answers(helper) == ["helped"]


def test_a_sidechain_in_the_file_of_its_session_is_an_episode_of_its_own(tmp_path: Path) -> None:
    main, helper = session(
        tmp_path,
        user("u1", None, 0, "go"),
        answer("a1", "u1", 1, call("t")),
        user("x1", None, 2, "help", isSidechain=True),
        answer("y1", "x1", 3, text("helped"), isSidechain=True),
        user("r1", "a1", 4, result("t")),
        answer("a2", "r1", 5, text("ok")),
    )
    assert (answers(main), answers(helper)) == (["", "ok"], ["helped"])
    assert helper.episode_id == "s/sidechain-1"


def test_a_cut_last_line_is_counted_and_a_damaged_line_is_named(tmp_path: Path) -> None:
    lines = [user("u1", None, 0, "go"), answer("a1", "u1", 1, text("ok")), user("u2", "a1", 2, "more")]
    path = write(tmp_path, lines)
    path.write_bytes(path.read_bytes()[:-20])
    (one,) = found(tmp_path)
    assert one.missing == (CUT_LINE, NO_SYSTEM_PROMPT)
    path.write_text('{"type": "mode"}\n{"type": \n' + json.dumps(lines[0]))
    (one,) = found(tmp_path)
    assert one.problem is not None
    assert (one.place, one.problem.kind) == ("s.jsonl:2", "not JSON")


def test_a_version_that_is_not_known_fails(tmp_path: Path) -> None:
    write(tmp_path, [user("u1", None, 0, "go", version="3.0.1")])
    (one,) = found(tmp_path)
    assert one.problem is not None
    assert (one.problem.kind, one.problem.value) == ("a version of Claude Code after 2", "'3.0.1'")


def test_a_session_without_an_answer_is_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, [user("u1", None, 0, "go")])
    assert [one.aside for one in found(tmp_path)] == [NO_ANSWER]


def test_images_costs_titles_and_lines_that_are_not_known_are_kept(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    (main,) = session(
        tmp_path,
        {"type": "summary", "summary": "An old title", "leafUuid": "a1"},
        user("u1", None, 0, [text("look"), image]),
        answer("a1", "u1", 1, text("seen"), costUSD=0.25),
        {"type": "brand-new", "value": 1},
        {"type": "custom-title", "customTitle": "Pictures"},
    )
    assert main.origin is not None
    assert main.origin["title"] == "Pictures"
    assert (main.origin["cwd"], main.origin["git_branch"]) == ("/home/ana/app", "main")
    assert main.origin["others"] == [{"type": "brand-new", "value": 1}]
    assert main.steps[0].cost_usd == 0.25
    assert any(isinstance(block, FileBlock) for block in (main.steps[0].messages or ())[0].content)


def test_a_place_in_a_hidden_folder_is_read(tmp_path: Path) -> None:
    place = tmp_path / ".claude" / "projects"
    write(place / "-home-ana-app", [user("u1", None, 0, "go"), answer("a1", "u1", 1, text("ok"))])
    assert [one.place for one in found(place)] == ["-home-ana-app/s.jsonl"]


def test_one_file_brings_its_agents_along_and_is_recognised(tmp_path: Path) -> None:
    folder = unpacked("claude-code", tmp_path)
    (path,) = folder.glob("*/*.jsonl")
    assert len(episodes(path)) == 2
    assert recognised(str(path)) == "claude-code"
