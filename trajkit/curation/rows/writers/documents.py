"""Write whole episodes as documents of another tool: as lines of one file, or a file each."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from urllib.parse import quote

from trajkit.curation.rows.conversion import Conversion, Progress
from trajkit.curation.rows.place import Place, is_folder
from trajkit.curation.rows.request import FileKind, Options
from trajkit.curation.rows.tally import Step, Tally, counts_of, evaluation, nothing, refuse_what_is_wrong
from trajkit.errors import RequestError
from trajkit.formats.base import Document, EpisodeFormat, json_line
from trajkit.schema import Purpose
from trajkit.store.dataset import Dataset

_LONGEST_NAME = 150


def write_documents(
    dataset: Dataset, goal: Path, form: EpisodeFormat, asked: Options, progress: Progress | None
) -> Conversion:
    """Write each episode as a document, in the dataset's order.

    Args:
        dataset: The episodes.
        goal: The file to write, or a folder if each document is a file.
        form: The format.
        asked: The options.
        progress: Gets the episodes done, and how many there are.

    Raises:
        RequestError: The goal is a file and the format writes many, or the other way round; or trainers read
            the format, and there are evaluation episodes.
        DataError: Something is lost, and `strict`.
        NothingMatched: There is no episode.
        StoreError: `goal` exists or cannot be written, or the store cannot be read.
    """
    if asked.kind == FileKind.PARQUET or goal.suffix == ".parquet":
        raise RequestError(f"{form.name} is JSON and cannot be written as Parquet")
    if form.is_file and not is_folder(goal):
        raise RequestError(
            f"{form.name} writes a file per episode, and {goal} is the name of one file",
            hint=f"-o {goal.with_suffix('')}, a folder",
        )
    place = Place(goal, FileKind.JSONL, is_folder=False)
    tally = Tally()
    with place.open() as work:
        output = _Output(work / "goal", form)
        n_steps = n_evaluation = 0
        for n_done, episode in enumerate(dataset, 1):
            document = form.write(episode)
            tally.lose(Step(episode.episode_id), document.losses)
            output.add(episode.episode_id, document)
            n_steps += episode.n_steps
            n_evaluation += episode.purpose == Purpose.EVAL
            if progress is not None:
                progress(n_done, dataset.store.manifest.counts.n_episodes)
        output.close()
        if n_evaluation and form.is_trained_on and not asked.include_eval:
            raise evaluation(dataset.store.path, n_evaluation)
        refuse_what_is_wrong(tally, form, asked)
        if not output.n_documents:
            raise nothing(dataset.store.path, {}, noun="episode")
        place.settle(work / "goal", None, {})
    return Conversion(
        path=goal,
        data=goal,
        format=form.name,
        n_rows=output.n_rows,
        n_bytes=output.n_bytes,
        sha256=output.digest.hexdigest(),
        store=dataset.store.path,
        store_digest=dataset.store.manifest.digest,
        n_episodes=output.n_documents,
        n_steps=n_steps,
        n_evaluation_episodes=n_evaluation,
        n_learned=n_steps,
        **counts_of(tally),
    )


class _Output:
    """The lines of one file, or a file for each document."""

    def __init__(self, goal: Path, form: EpisodeFormat) -> None:
        self._goal = goal
        self._form = form
        if form.is_file:
            goal.mkdir()
        self._file = None if form.is_file else goal.open("wb")
        self.digest = hashlib.sha256()
        self.n_documents = self.n_rows = self.n_bytes = 0

    def add(self, episode_id: str, document: Document) -> None:
        if self._form.is_file and not self._form.is_lines:
            text = json.dumps(document.values[0], ensure_ascii=False, indent=2, allow_nan=False) + "\n"
        else:
            text = "".join(f"{json_line(value)}\n" for value in document.values)
        data = text.encode()
        if self._file is not None:
            self._file.write(data)
            self.digest.update(data)
            self.n_rows += len(document.values)
        else:
            name = _name(episode_id) + (".jsonl" if self._form.is_lines else ".json")
            (self._goal / name).write_bytes(data)
            self.digest.update(f"{name}:{hashlib.sha256(data).hexdigest()}\n".encode())
            self.n_rows += 1
        self.n_documents += 1
        self.n_bytes += len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _name(episode_id: str) -> str:
    """Return a unique file name: the id itself if possible."""
    name = quote(episode_id, safe=" @+=,.")
    if name.startswith("."):  # hidden, or the folder itself
        name = f"%2E{name[1:]}"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{hashlib.sha256(episode_id.encode()).hexdigest()[:16]}"
