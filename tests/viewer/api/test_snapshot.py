"""The page as one file: it holds what it says, asks for nothing, and keeps every text in its place."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.viewer.api.stores import HOSTILE, episode, step
from trajkit.commands.view import view
from trajkit.errors import NothingMatched, QueryError, RequestError, StoreError
from trajkit.store.writer import write_episodes
from trajkit.viewer import snapshot
from trajkit.viewer.snapshot import bundle, one_page


def _data(path: Path) -> Any:
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>',
        path.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return json.loads(found)


def test_a_file_holds_every_episode_with_all_its_steps(
    ten_store: Path, tuned_store: Path, tmp_path: Path
) -> None:
    written = view(ten_store, tuned_store, html=tmp_path / "page.html")
    assert (written.n_episodes, written.n_chosen, written.note) == (14, 14, None)
    assert written.n_bytes == (tmp_path / "page.html").stat().st_size
    data = _data(tmp_path / "page.html")
    assert len(data["episodes"]["rows"]) == len(data["episode"]) == 14
    assert {key: len(value["steps"]) for key, value in data["episode"].items()} == {
        **{f"0/ep-{seed}": seed + 1 for seed in range(10)},
        **{f"1/{'ep' if seed == 0 else 'after'}-{seed}": 1 for seed in range(4)},
    }
    assert data["limited"] is None
    assert [one["name"] for one in data["stores"]["stores"]] == ["ten", "tuned"]
    assert data["charts"]["funnel"][0]["stages"][-1]["n_episodes"] == 9


def test_a_limit_and_a_condition_choose_and_the_file_says_how_many_of_how_many(
    ten_store: Path, tmp_path: Path
) -> None:
    written = view(ten_store, html=tmp_path / "page.html", limit=3, where="seed >= 4")
    said = "3 of 6 episodes: the first 3 of 6 were asked for"
    assert (written.n_episodes, written.n_chosen, written.note) == (3, 6, said)
    data = _data(tmp_path / "page.html")
    assert [row["id"] for row in data["episodes"]["rows"]] == ["ep-4", "ep-5", "ep-6"]
    assert data["limited"] == {"n": 3, "total": 6, "note": said}


def test_what_does_not_fit_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"small": "x", "large": "y" * 15_000, "again": "z"}
    made = [episode(name, steps=[step(0, observation=text)] * 1) for name, text in texts.items()]
    many = episode("many", steps=[step(index, observation="m" * 15_000) for index in range(250)])
    write_episodes(tmp_path / "store", [*made, many], kind="test")
    monkeypatch.setattr(snapshot, "MOST_BYTES", 14_000)
    written = view(tmp_path / "store", html=tmp_path / "page.html")
    assert sorted(_data(tmp_path / "page.html")["episode"]) == ["0/again", "0/small"]
    assert written.note == "2 of 4 episodes: 2 did not fit into 0 MB"


def test_no_text_of_an_episode_can_end_its_element(odd_store: Path, tmp_path: Path) -> None:
    view(odd_store, html=tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "alert(1)</script>" not in html
    assert "<img" not in html
    assert html.count("<script") == html.count("</script>") == 2
    data = _data(tmp_path / "page.html")
    assert f"0/{HOSTILE}" in data["episode"]
    assert data["episode"][f"0/{HOSTILE}"]["steps"][0]["new_messages"][0]["blocks"][0]["text"] == HOSTILE


def test_the_file_asks_for_nothing_and_runs_only_its_own_script(ten_store: Path, tmp_path: Path) -> None:
    view(ten_store, html=tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    markup = re.sub(r"<(script|style)\b[^>]*>.*?</\1>", "", html, flags=re.DOTALL)
    assert re.findall(r"\b(?:src|href)=\"(?!data:|#)[^\"]*", markup) == []
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "connect-src" not in policy  # so that default-src refuses every request
    for pattern in (r'<script type="module">(.*?)</script>', r"<style>(.*?)</style>"):
        (text,) = re.findall(pattern, html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_bad_wishes_leave_no_file(ten_store: Path, tmp_path: Path) -> None:
    goal = tmp_path / "page.html"
    with pytest.raises(RequestError, match="limit is 0"):
        view(ten_store, html=goal, limit=0)
    with pytest.raises(QueryError, match="no column 'nonsense'"):
        view(ten_store, html=goal, where="nonsense")
    with pytest.raises(NothingMatched, match="seed > 99"):
        view(ten_store, html=goal, where="seed > 99")
    assert list(tmp_path.iterdir()) == []
    goal.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        view(ten_store, html=goal)
    assert goal.read_text() == "mine"


FILES = {
    "index.html": '<meta charset="utf-8">\n<link rel="stylesheet" href="page/a.css">\n'
    '<script type="module" src="page/main.js"></script>',
    "a.css": "p { color: red; }",
    "main.js": 'import { one as two, three } from "./x.js";\nimport "./y.js";\nconsole.log(two, three);\n',
    "x.js": 'import {\n  four,\n} from "./y.js";\nexport const one = four;\nexport function three() {}\n',
    "y.js": "const one = 4;\nexport const four = one;\n",
}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("y.js", 'import { one } from "./x.js";', "circle"),
        ("y.js", 'import one from "./z.js";', "cannot be read"),
        ("y.js", "export default 3;", "cannot be read"),
        ("y.js", 'export * from "./x.js";', "cannot be read"),
        ("y.js", 'const text = "</script>";', "would end its HTML element"),
        ("a.css", "</style>", "would end its HTML element"),
        ("index.html", "<p>nothing</p>", "occurs 0 times"),
    ],
)
def test_files_that_cannot_be_one_page_are_refused(name: str, text: str, said: str) -> None:
    one_page(FILES, "{}")
    with pytest.raises(ValueError, match=said):
        one_page({**FILES, name: text}, "{}")


def test_modules_become_one_script_in_the_order_in_which_they_are_needed() -> None:
    script = bundle(FILES, "main.js")
    assert [line for line in script.splitlines() if line.startswith("const module_")] == [
        "const module_y_js = (() => {",
        "const module_x_js = (() => {",
        "const module_main_js = (() => {",
    ]
    assert "const { one: two, three } = module_x_js;" in script
    assert "return { one, three };" in script
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
