import json
from pathlib import Path

import pytest

from trajkit.errors import StoreError
from trajkit.rollouts.records.lines import LineFile

HEADS = [{"begun": {"n": 1}}, {"done": {"n": 2, "text": ',"episode":{'}}, {"begun": {"n": 3}}]
EPISODE = '{"steps":[{"text":"a wall, \\"episode\\": é\\u2028"}],"tags":{}}'


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "journal.jsonl"


def written(path) -> LineFile:
    file = LineFile(path)
    file.append(HEADS[0])
    file.append(HEADS[1], EPISODE)
    file.append(HEADS[2])
    file.close()
    return file


def loaded(path) -> tuple[LineFile, list]:
    file, heads = LineFile(path), []
    file.load(heads.append)
    return file, heads


def test_lines_come_back_as_they_were_added(path):
    here = written(path)
    there, heads = loaded(path)
    assert heads == HEADS
    for file in (here, there):
        assert [(line.head, line.episode.decode()) for line in file] == [
            (HEADS[0], ""),
            (HEADS[1], EPISODE),
            (HEADS[2], ""),
        ]


def test_every_line_is_json_of_its_own(path):
    written(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[1] == {**HEADS[1], "episode": json.loads(EPISODE)}


def test_a_file_torn_anywhere_loses_its_last_line_only_and_can_be_added_to(path):
    written(path)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        file, heads = loaded(path)
        n_whole = sum(end <= length for end in ends)
        assert heads == HEADS[:n_whole]
        file.append({"begun": {"n": 9}})
        file.close()
        assert loaded(path)[1] == [*HEADS[:n_whole], {"begun": {"n": 9}}]


def test_a_last_line_whose_end_was_never_written_to_the_disk_is_torn_too(path):
    written(path)
    lines = path.read_bytes().splitlines(keepends=True)
    done = lines[1]
    path.write_bytes(lines[0] + done[:40] + b"\0" * (len(done) - 42) + done[-2:])
    assert loaded(path)[1] == HEADS[:1]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(path):
    written(path)
    path.write_bytes(path.read_bytes().replace(b'{"done"', b'\0"done"'))
    with pytest.raises(StoreError, match=r"journal\.jsonl:2: the line is damaged") as caught:
        loaded(path)
    assert "--new-run" in caught.value.hint
