"""`docs/recorder.md` does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import trajkit
from trajkit.rollouts.recorder.episode import RecordedEpisode
from trajkit.schema import Outcome

PAGE = (Path(__file__).parents[3] / "docs" / "recorder.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def reply(wire, request):
    """A model that counts upwards, in whatever way it is asked."""
    if "input" in request:
        return wire.Answer(wire.response(wire.text_message(f"{request['input']}!")))
    if request.get("stream"):
        events = [wire.chunk({"role": "assistant", "content": "ok"}), wire.chunk({}, finish_reason="stop")]
        return wire.Answer(events=[*events, "data: [DONE]\n\n"])
    return wire.Answer(wire.completion(str(1 + len(request["messages"]) // 2)))


@pytest.mark.full
def test_the_examples_run_and_leave_what_they_say(server, wire, tmp_path):
    server.reply = lambda request: reply(wire, request)
    assert len(BLOCKS) == 3
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(BLOCKS)],
        cwd=tmp_path,
        env={
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "unused",
            "PYTHONPATH": str(Path(trajkit.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *guesses, late = done.stdout.splitlines()
    assert len(guesses) == 3
    assert f"```text\n{late}\n```" in PAGE
    mine = {episode.seed: episode for episode in trajkit.open_dataset(tmp_path / "stores" / "mine")}
    assert {episode.purpose for episode in mine.values()} == {"train"}
    for seed, secret in ((0, 7), (1, 3), (2, 1)):
        is_found = secret <= 5
        assert mine[seed].n_steps == (secret if is_found else 5)
        assert mine[seed].total_reward == float(is_found)
        assert mine[seed].outcome == (Outcome.SUCCESS if is_found else Outcome.TRUNCATED)
        assert [step.n_prompt_kept for step in mine[seed].steps[1:]] == [
            2 * n for n in range(1, mine[seed].n_steps)
        ]
    more = {episode.task: episode for episode in trajkit.open_dataset(tmp_path / "stores" / "more")}
    assert sorted(step.completion.text for step in more["threads"].steps) == ["one!", "three!", "two!"]
    assert [(step.agent_name, step.reward) for step in more["agents"].steps] == [
        ("planner", 1.0),
        ("actor", None),
    ]
    assert [step.completion.text for step in more["asynchronous"].steps] == ["ok", "ok"]


def test_the_page_names_every_method():
    methods = {name for name in vars(RecordedEpisode) if not name.startswith("_")}
    assert methods == set(re.findall(r"`e\.(\w+)\(", PAGE))
