"""What every source of episodes must hold, as tests that pytest runs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from trajkit.errors import TrajkitError
from trajkit.formats.reading.document import Reading
from trajkit.schema import Episode
from trajkit.sources.files.found import Found, Unread
from trajkit.sources.files.importing import import_files
from trajkit.sources.source import FIELDS, Fate, Source
from trajkit.sources.wish import Wish
from trajkit.store.reader import open_store

_N_CUTS = 12


class SourceContract:
    """The contract of a source. Subclass it in a test file, and name the source and a fixture.

    Example:
        >>> class TestMine(SourceContract):
        ...     source = SOURCE
        ...     place = "tests/data/mine.jsonl"
        ...     n_episodes = 3
        ...     n_steps = 12
    """

    source: ClassVar[Source]
    """The source."""
    place: ClassVar[str]
    """A path or URL with records that have every field that the source keeps; no secret may be in them."""
    n_episodes: ClassVar[int]
    """How many episodes are there, those of sub-agents included."""
    n_steps: ClassVar[int]
    """How many steps they have together."""
    not_in_fixture: ClassVar[Sequence[str]] = ()
    """Fields that the source keeps and this fixture lacks; another test must show each."""

    def episodes(self, wish: Wish = Wish()) -> list[Episode]:  # noqa: B008 -- frozen
        """All episodes of the fixture."""
        return [episode for document in self.documents(wish) for episode in document]

    def documents(self, wish: Wish = Wish()) -> list[tuple[Episode, ...]]:  # noqa: B008 -- frozen
        """The episodes of the fixture by document: those of sub-agents are with their parent's."""
        found = [one for one in self.source.read(self.place, wish) if isinstance(one, Found)]
        wrong = [f"{one.place}: {one.problem}" for one in found if one.problem is not None]
        assert not wrong, wrong
        return [one.reading.episodes for one in found if isinstance(one.reading, Reading)]

    def test_the_source_tells_about_fields_that_are_known(self) -> None:
        """No fact is about a field that is not in `FIELDS`."""
        assert set(self.source.fidelity) <= set(FIELDS)

    def test_the_fixture_has_its_episodes_and_steps(self) -> None:
        """Nothing is lost or made up."""
        episodes = self.episodes()
        assert (len(episodes), sum(one.n_steps for one in episodes)) == (self.n_episodes, self.n_steps)

    def test_reading_twice_gives_the_same_episodes(self) -> None:
        """The order is fixed, and no value depends on the time of reading."""
        assert self.episodes() == self.episodes()

    def test_what_is_kept_is_there_and_what_is_lost_is_not(self) -> None:
        """The facts of the source are true of the fixture."""
        episodes = self.episodes()
        wrong = []
        for name, has in FIELDS.items():
            is_there = any(has(one) for one in episodes)
            is_lost = self.source.fact(name).fate == Fate.LOST
            if is_lost and is_there:
                wrong.append(f"{name} is said to be lost, and is there")
            if not is_lost and not is_there and name not in self.not_in_fixture:
                wrong.append(f"{name} is said to be kept, and is not there")
        assert not wrong, wrong

    def test_every_episode_has_the_name_of_its_source_and_an_id_of_its_own(self) -> None:
        """Ids are unique, and steps are in the order of time."""
        episodes = self.episodes()
        assert {one.source for one in episodes} == {self.source.name}
        assert len({one.episode_id for one in episodes}) == len(episodes)
        for episode in episodes:
            times = [step.started_at for step in episode.steps if step.started_at is not None]
            assert times == sorted(times), episode.episode_id

    def test_the_parent_of_every_sub_agent_is_there(self) -> None:
        """An episode of a sub-agent names the episode that started it."""
        episodes = {one.episode_id: one for one in self.episodes()}
        for episode in episodes.values():
            parent = (episode.origin or {}).get("parent_episode_id")
            assert parent is None or (parent in episodes and parent != episode.episode_id)

    def test_a_store_is_made_of_it_and_since_leaves_out_what_is_older(self, tmp_path: Path) -> None:
        """An import resumes by time: what ended before is left out and counted."""
        report, _ = import_files(self.place, tmp_path / "all", Wish(format=self.source.name))
        assert (report.n_episodes, report.n_steps) == (self.n_episodes, self.n_steps)
        assert open_store(tmp_path / "all").manifest.counts.n_steps == self.n_steps
        ends = [
            max(one.ended_at for one in document if one.ended_at is not None)
            for document in self.documents()
            if any(one.ended_at is not None for one in document)
        ]
        if not ends:
            return
        later, _ = import_files(
            self.place, tmp_path / "later", Wish(format=self.source.name, since=max(ends))
        )
        assert later.left.get("before --since", 0) == sum(end < max(ends) for end in ends)

    def test_a_file_that_is_cut_short_is_named_and_nothing_else_fails(self, tmp_path: Path) -> None:
        """Damage is a problem with a place, or a refusal of the whole; it is no other exception."""
        if "://" in self.place:
            return
        whole = Path(self.place)
        files = [whole] if whole.is_file() else sorted(each for each in whole.rglob("*") if each.is_file())
        largest = max(files, key=lambda each: each.stat().st_size)
        data = largest.read_bytes()
        for number in range(1, _N_CUTS):
            copy = tmp_path / f"cut-{number}"
            if whole.is_dir():
                shutil.copytree(whole, copy)
                damaged = copy / largest.relative_to(whole)
            else:
                copy.mkdir()
                damaged = copy / whole.name
            damaged.write_bytes(data[: len(data) * number // _N_CUTS])
            with contextlib.suppress(TrajkitError):
                for one in self.source.read(str(copy if whole.is_dir() else damaged), Wish()):
                    assert isinstance(one, Found | Unread)
