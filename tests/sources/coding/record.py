"""Record sessions of the real programs: `python -m tests.sources.coding.record PROGRAM FOLDER GOAL`.

Each program runs in an environment of its own in the folder, against `Scripted`, and does a few things: it
reads a file, runs commands, starts a sub-agent where it can, goes on after a summary, and fails. What it
stored, and what the server was sent and answered (`asked.json`), becomes one archive.

Recorded with @anthropic-ai/claude-code 2.1.332, @openai/codex 0.169.0, opencode-ai 1.18.33 and
@mariozechner/pi-coding-agent 0.73.1, in the folder /tmp/coding-agents. It needs node and npm.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tests.sources.coding.scripted import Answer, Scripted

DATA = Path(__file__).parents[2] / "data" / "sources" / "coding"
"""Where the archives are."""
_KERNEL = "6.1.0"
_LONGEST_S = 150


class Room(NamedTuple):
    """Where a program runs."""

    home: Path
    work: Path
    url: str

    def run(self, *command: str, **environment: str) -> None:
        """Run a program; one that fails is part of the play."""
        variables = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "OPENAI_API_KEY": "scripted",
            "ANTHROPIC_API_KEY": "scripted",
            **environment,
        }
        subprocess.run(
            command,
            cwd=self.work,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LONGEST_S,
            check=False,
        )


def _shell(tool: str, command: str, **more: str) -> list[Any]:
    return [tool, {("cmd" if tool == "exec_command" else "command"): command, **more}]


def _scripts(tool: str, read: list[Any], ask: list[Any] | None, **more: str) -> dict[str, list[Answer]]:
    """What the model says, with the names that a program gives its tools."""
    first = {"thought": "Look at the file.", "text": "I read the notes."}
    helped = [] if ask is None else [{"text": "I ask a helper.", "calls": [ask]}]
    return {
        "main": [
            {**first, "calls": [read, _shell(tool, "echo five", **more)]},
            *helped,
            {"text": "Seven and five."},
        ],
        "helper": [
            {"text": "I count.", "calls": [_shell(tool, "wc -w notes.txt", **more)]},
            {"text": "One word."},
        ],
        "again": [{"calls": [_shell(tool, "exit 3", **more)]}, {"text": "It failed."}],
        "after": [{"text": "After it.", "input": 20}],
        "fails": [{"error": 400}],
    }


def _claude_code(binary: Path, room: Room) -> Path:
    variables = {
        "ANTHROPIC_BASE_URL": room.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
    for words in (["[main] What?"], ["-c", "[again] Run."], ["-c", "/compact"], ["-c", "[after] And now?"]):
        tools = ["--model", "claude-sonnet-4-5", "--allowedTools", "Read,Bash,Agent"]
        room.run(str(binary / "claude"), "-p", *words, *tools, **variables)
    room.run(str(binary / "claude"), "-p", "-c", "[fails] Fail.", "--model", "claude-sonnet-4-5", **variables)
    return room.home / ".claude" / "projects"


def _codex(binary: Path, room: Room) -> Path:
    (room.home / ".codex").mkdir()
    (room.home / ".codex" / "config.toml").write_text(
        'model = "gpt-5.4"\nmodel_provider = "scripted"\n[model_providers.scripted]\nname = "scripted"\n'
        f'base_url = "{room.url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
        "[features]\nmulti_agent = true\n"
    )
    codex = (str(binary / "codex"), "exec")
    room.run(*codex, "--sandbox", "workspace-write", "[main] What?")
    resume = (*codex, "resume", "--last")
    room.run(*resume, "[again] Run.")
    room.run(*resume, "-c", "model_auto_compact_token_limit=100", "[after] And now?")
    room.run(*resume, "[fails] Fail.")
    return room.home / ".codex" / "sessions"


def _opencode(binary: Path, room: Room) -> Path:
    model: dict[str, Any] = {
        "name": "stand-in",
        "tool_call": True,
        "reasoning": True,
        "limit": {"context": 100_000, "output": 4000},
        "cost": {"input": 1, "output": 2},
    }
    config: dict[str, Any] = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/stand-in",
        "small_model": "scripted/stand-in",
        "permission": "allow",
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{room.url}/v1", "apiKey": "scripted"},
                "models": {"stand-in": model},
            }
        },
    }
    for words in (
        ["[main] What?"],
        ["-c", "[again] Run."],
        ["-c", "[after] And now?"],
        ["-c", "[fails] Fail."],
    ):
        if words[-1].startswith("[after]"):
            model["limit"] = {"context": 125, "output": 5}  # so little that it summarises
        (room.work / "opencode.json").write_text(json.dumps(config))
        room.run(
            str(binary / "opencode"),
            "run",
            *words,
            OPENCODE_DISABLE_MODELS_FETCH="1",
            OPENCODE_DISABLE_LSP_DOWNLOAD="1",
        )
    folder = room.home / ".local" / "share" / "opencode"
    goal = room.home / "kept"
    goal.mkdir()
    with closing(sqlite3.connect(folder / "opencode.db")) as database:
        database.execute("DELETE FROM event")  # a second copy of it all
        database.commit()
        database.execute("VACUUM INTO ?", (str(goal / "opencode.db"),))
    return goal


def _pi(binary: Path, room: Room) -> Path:
    (room.home / ".pi" / "agent").mkdir(parents=True)
    model = {
        "id": "stand-in",
        "reasoning": True,
        "input": ["text"],
        "contextWindow": 100_000,
        "maxTokens": 4000,
        "cost": {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
    }
    provider = {"baseUrl": f"{room.url}/v1", "api": "openai-completions", "apiKey": "OPENAI_API_KEY"}
    models = {"providers": {"scripted": {**provider, "models": [model]}}}
    (room.home / ".pi" / "agent" / "models.json").write_text(json.dumps(models))
    for words in (["[main] What?"], ["-c", "[again] Run."], ["-c", "[fails] Fail."]):
        room.run(
            str(binary / "pi"), "-p", "--provider", "scripted", "--model", "stand-in", *words, PI_OFFLINE="1"
        )
    return room.home / ".pi" / "agent" / "sessions"


class Program(NamedTuple):
    """A program, and how it is run."""

    package: str
    play: Callable[[Path, Room], Path]
    """Given the folder of its command and a room, runs it, and returns the folder to keep."""
    scripts: Callable[[Path], Mapping[str, Sequence[Answer]]]
    """Given the working folder, what the model says."""
    installed_by: str = ""
    """The script that completes its installation."""
    summary: str = "\0"
    """A text in the message that asks for a summary."""


def _of_claude_code(work: Path) -> Mapping[str, Sequence[Answer]]:
    ask = {
        "description": "count words",
        "prompt": "[helper] Count the words.",
        "subagent_type": "general-purpose",
    }
    scripts = _scripts("Bash", ["Read", {"file_path": str(work / "notes.txt")}], ["Agent", ask])
    return {
        **scripts,
        "main": [*scripts["main"], {"text": "The helper is done."}],
    }  # it works beside the agent


def _of_codex(_work: Path) -> Mapping[str, Sequence[Answer]]:
    ask = ["multi_agent_v1:spawn_agent", {"message": "[helper] Count the words."}]
    scripts = _scripts("exec_command", _shell("exec_command", "cat notes.txt"), ask)
    wait = {"calls": [_shell("exec_command", "sleep 3")]}
    return {**scripts, "main": [*scripts["main"][:2], wait, *scripts["main"][2:]]}


def _of_opencode(work: Path) -> Mapping[str, Sequence[Answer]]:
    ask = {"description": "count words", "prompt": "[helper] Count the words.", "subagent_type": "general"}
    read = ["read", {"filePath": str(work / "notes.txt")}]
    return _scripts("bash", read, ["task", ask], description="Run it")


def _of_pi(_work: Path) -> Mapping[str, Sequence[Answer]]:
    return _scripts("bash", ["read", {"path": "notes.txt"}], None)


PROGRAMS: Mapping[str, Program] = {
    "claude-code": Program(
        "@anthropic-ai/claude-code@2.1.332",
        _claude_code,
        _of_claude_code,
        "install.cjs",
        "REMINDER: Do NOT call any tools",
    ),
    "codex": Program("@openai/codex@0.169.0", _codex, _of_codex),
    "opencode": Program("opencode-ai@1.18.33", _opencode, _of_opencode, "postinstall.mjs", "summar"),
    "pi": Program("@mariozechner/pi-coding-agent@0.73.1", _pi, _of_pi),
}


def record(name: str, folder: Path, goal: Path) -> Path:
    """Run a program in a folder, and write what it stored as an archive; return the archive."""
    program = PROGRAMS[name]
    binary = _installed(program, folder / "npm" / name)
    room_folder = folder / name
    shutil.rmtree(room_folder, ignore_errors=True)
    home, work = room_folder / "home", room_folder / "work"
    home.mkdir(parents=True)
    work.mkdir()
    (work / "notes.txt").write_text("seven\n")
    subprocess.run(["git", "init", "-q", "-b", "main", str(work)], check=True)
    with Scripted(program.scripts(work), other="The notes say seven.", summary=program.summary) as server:
        kept = program.play(binary, Room(home, work, server.url))
        asked = [_slim(one) for one in server.asked]
    archive = goal / f"{name}.tar.xz"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz") as tar:
        for path in sorted(each for each in kept.rglob("*") if each.is_file()):
            _add(tar, f"sessions/{path.relative_to(kept).as_posix()}", path.read_bytes())
        _add(tar, "asked.json", json.dumps(asked).encode())
    return archive


def _installed(program: Program, folder: Path) -> Path:
    """Install a program from npm, if it is not there; return the folder of its command."""
    binary = folder / "node_modules" / ".bin"
    if not binary.is_dir():
        folder.mkdir(parents=True)
        (folder / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", program.package], cwd=folder, check=True)
        if program.installed_by:
            package = folder / "node_modules" / program.package.rpartition("@")[0]
            subprocess.run(["node", program.installed_by], cwd=package, check=True)
    return binary


def _slim(one: Mapping[str, Any]) -> dict[str, Any]:
    body = one["body"]
    kept = {name: body[name] for name in ("system", "instructions", "messages", "input") if name in body}
    tools = [tool.get("name") or (tool.get("function") or {}).get("name") for tool in body.get("tools") or ()]
    return {"script": one["script"], "answer": one["answer"], "tools": tools, **kept}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    if not name.endswith(".db"):
        data = data.replace(platform.release().encode(), _KERNEL.encode())
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    sys.stdout.write(f"{record(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))}\n")
