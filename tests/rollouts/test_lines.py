import subprocess
import sys
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
    import json

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


def test_a_full_disk_is_an_error_of_ours_and_leaves_no_half_line(tmp_path):
    # a limit on the size of a file makes writes fail for real, in a process of its own
    script = (
        "import resource, signal\n"
        "from pathlib import Path\n"
        "from trajkit.errors import StoreError\n"
        "from trajkit.rollouts.records.lines import LineFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "file = LineFile(Path('journal.jsonl'))\n"
        "for n in range(100):\n"
        "    try:\n"
        "        file.append({'n': n}, '{\"text\": \"' + 'x' * 1000 + '\"}')\n"
        "    except StoreError as error:\n"
        "        print(n, error)\n"
        "        break\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "file.append({'n': 'small'})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.startswith("9 the journal journal.jsonl cannot be written: File too large")
    assert "run the same command again to resume" in done.stdout
    assert loaded(tmp_path / "journal.jsonl")[1] == [*({"n": n} for n in range(9)), {"n": "small"}]
