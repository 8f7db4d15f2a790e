"""What the programs were sent and answered is what their sessions bring back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from tests.sources.coding.record import PROGRAMS, record
from tests.sources.coding.recorded import Asked, asked, assert_asked, unpacked
from trajkit.schema import Episode
from trajkit.sources.catalog import source_named
from trajkit.sources.coding import claude_code, codex, opencode, pi
from trajkit.testing import SourceContract


class _Recorded(SourceContract):
    n_episodes = 2

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _place(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.place = str(unpacked(cls.source.name, tmp_path_factory.mktemp(cls.source.name)))

    def test_the_steps_are_what_the_server_was_sent_and_answered(self) -> None:
        check(self.source.name, self.episodes(), asked(Path(self.place)))


def check(name: str, episodes: Sequence[Episode], calls: Sequence[Asked]) -> None:
    """Assert that the episodes of a recording are what the server was sent and answered."""
    main, *helpers = episodes
    # OpenCode goes on after a summary with a text of its own, which names no script; others have no tools
    is_own = (lambda one: bool(one.tools)) if name == "opencode" else (lambda one: one.script is not None)
    own = [one for one in calls if one.script != "helper" and is_own(one)]
    while own[-2].script == "fails":  # the program tried again and logged it once
        own.pop(-2)
    has_all = name == "claude-code"
    steps = [step for step in main.steps if step.messages is not None]
    known = main.model_copy(
        update={"steps": tuple(step.model_copy(update={"step_index": n}) for n, step in enumerate(steps))}
    )
    has_system = name in ("claude-code", "codex")
    assert_asked(known, own, has_system=has_system, has_tools=has_all, is_cut=name == "codex")
    if name == "pi":
        assert not helpers
        return
    (helper,) = helpers
    assert helper.episode_id.startswith(f"{main.episode_id}/")
    assert (helper.origin or {})["parent_episode_id"] == main.episode_id
    theirs = [one for one in calls if one.script == "helper"]
    assert_asked(helper, theirs, has_system=has_system, has_tools=has_all, is_cut=name == "codex")
    summarised = [step for step in main.steps if "compaction" in (step.extra or {})]
    assert [step.n_prompt_kept for step in summarised] == [0]


class TestClaudeCode(_Recorded):
    source = claude_code.SOURCE
    n_steps = 10
    not_in_fixture = ("images and files", "cost")


class TestCodex(_Recorded):
    source = codex.SOURCE
    n_steps = 11
    not_in_fixture = ("images and files",)


class TestOpenCode(_Recorded):
    source = opencode.SOURCE
    n_steps = 10
    not_in_fixture = ("images and files",)


class TestPi(_Recorded):
    source = pi.SOURCE
    n_episodes = 1
    n_steps = 5
    not_in_fixture = ("images and files", "sub-agents")


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_new_recording_of_the_program_comes_back_the_same(name: str, tmp_path: Path) -> None:
    data = record(name, tmp_path / "run", tmp_path).parent
    folder = unpacked(name, tmp_path / "sessions", data=data)

    class Anew(SourceContract):
        source = source_named(name)
        place: ClassVar[str] = str(folder)

    check(name, Anew().episodes(), asked(folder))
