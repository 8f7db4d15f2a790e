"""The README does what it says: its console blocks print what is shown, its other blocks name what exists.

In shown output `...` stands for what differs from run to run, and runs of blanks count as one.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from tests.honest.test_python import COMMANDS
from tests.pages import console, printed
from trajkit import JOBS

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = (ROOT / "recipes" / "demo.sh").read_text(encoding="utf-8")


def trajkit_commands() -> list[list[str]]:
    """The arguments of every `trajkit` call in the README, in blocks and in sentences, and in the demo."""
    lines = [shown.command for shown in console(README)]
    lines += re.findall(r"`(trajkit [^`]+)`", README)
    lines += re.findall(r"^run (trajkit .+)$", DEMO.replace("\\\n", ""), re.MULTILINE)
    return [shlex.split(line)[1:] for line in lines]


def test_the_story_runs_as_typed_and_prints_what_is_shown(tmp_path):
    shutil.copytree(ROOT / "recipes" / "babyai", tmp_path / "recipes" / "babyai")
    (tmp_path / "first").mkdir()
    assert len(printed(README, tmp_path / "first", COLUMNS="100", OMP_NUM_THREADS="1")) == 8
    assert "after" in (tmp_path / "first" / "report" / "report.html").read_text(encoding="utf-8")


def test_the_readme_fits_on_three_screens():
    assert len(README.splitlines()) <= 120


def test_the_table_of_commands_is_that_of_the_help():
    rows = re.findall(r"^\| ([A-Z][\w ]+) \| (.+?) \| .+ \|$", README, re.MULTILINE)
    assert {job: tuple(re.findall(r"`([\w-]+)`", re.sub(r"\(.*?\)", "", cell))) for job, cell in rows} == JOBS


def test_every_trajkit_call_names_a_command_and_options_that_exist():
    calls = trajkit_commands()
    assert {"select", "split", "export", "sft", "evaluate"} <= {call[0] for call in calls}
    for words in calls:
        command = COMMANDS.get(" ".join(words[:2])) or COMMANDS[words[0]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-") and word != "-"} <= known, words


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documents = [README, (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")]
    named = {
        target
        for text in documents
        for target in re.findall(r"\bmake ([a-z-]+)\b(?=`|\s*$|\s+#|\s{2})", text, re.M)
    }
    assert {"demo", "test", "install"} <= named
    for target in named:
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target


def test_links_lead_to_files_that_exist():
    for document in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/architecture.md",
        "schemas/README.md",
        "recipes/README.md",
    ):
        path = ROOT / document
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert "://" in target or (path.parent / target).exists(), f"{document}: {target}"


def test_links_of_the_pages_into_the_repository_lead_to_files_that_exist():
    for page in (ROOT / "docs").glob("*.md"):
        address = r"https://github\.com/trajkit/trajkit/(?:blob|tree)/main/([^)#]+)"
        for target in re.findall(address, page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{page.name}: {target}"


def test_the_first_screen_shows_the_two_commands():
    first_screen = "\n".join(README.splitlines()[:24])
    assert "make demo" in first_screen
    assert "make test" in first_screen
