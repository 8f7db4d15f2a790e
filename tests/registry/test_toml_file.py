from __future__ import annotations

from pathlib import Path

import pytest

from trajkit.errors import ConfigError
from trajkit.registry.toml_file import TomlFile

TEXT = """\
# the top
[a]
x = 1  # one

[a.b]
y = "two"
# about c
[c]
z = [1,
  2]  # kept
"""


def file(text: str) -> TomlFile:
    return TomlFile(Path("some.toml"), text)


def test_a_table_goes_after_the_one_it_follows_and_nothing_else_changes() -> None:
    made = file(TEXT).with_table(("a", "d"), {"k": True, "inner": {"n": "m"}}, after=("a",))
    block = '\n[a.d]\nk = true\ninner.n = "m"\n'
    assert made.text == TEXT.replace('y = "two"\n', f'y = "two"\n{block}')
    assert made.get(("a", "d", "inner", "n")) == "m"


def test_a_table_without_a_place_goes_to_the_end() -> None:
    made = file(TEXT).with_table(("new",), {"k": 1})
    assert made.text == TEXT + "\n[new]\nk = 1\n"
    assert file("").with_table(("new",), {"k": 1}).text == "[new]\nk = 1\n"


def test_a_table_goes_into_one_that_is_written_with_dots_or_inline() -> None:
    dotted = file('[functions.act]\nvariants.one.model = "m"  # mine\n')
    made = dotted.with_table(("functions", "act", "variants", "two"), {"model": "n"})
    assert made.get(("functions", "act", "variants")) == {"one": {"model": "m"}, "two": {"model": "n"}}
    assert "# mine" in made.text
    inline = file("a = { b = { c = 1 } }\n")
    assert inline.with_table(("a", "d"), {"e": 2}).data == {"a": {"b": {"c": 1}, "d": {"e": 2}}}


def test_a_value_changes_in_its_place() -> None:
    made = file(TEXT).with_value(("c", "z"), [3])
    assert made.get(("c", "z")) == [3]
    assert made.text.startswith("# the top\n[a]\nx = 1  # one\n")


def test_names_that_need_quotes_get_them() -> None:
    made = file(TEXT).with_table(("models", "ft:gpt::x"), {"routing": ["a b"]})
    assert '[models."ft:gpt::x"]' in made.text
    assert made.get(("models", "ft:gpt::x", "routing")) == ["a b"]


def test_a_header_in_a_text_is_no_header() -> None:
    text = '[a]\ns = """\n[b]\n"""\n\n[b]\nx = 1\n'
    made = file(text).with_table(("b", "c"), {"y": 2}, after=("b",))
    assert made.get(("b", "c")) == {"y": 2}
    assert made.get(("a", "s")) == "[b]\n"


def test_what_is_not_toml_is_named_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"some\.toml is not TOML: .*line 2"):
        file("[a]\nx = \n")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    for name in ("none.toml", "bad.toml"):
        with pytest.raises(ConfigError, match=name):
            TomlFile.read(tmp_path / name)


def test_the_line_that_is_not_toml_is_shown_unless_it_may_hold_a_key() -> None:
    with pytest.raises(ConfigError, match=r"line 2, column 5\): x =$"):
        file("[a]\nx = \n")
    with pytest.raises(ConfigError) as caught:
        file('[a]\napi_key = sk-secret"\n')
    assert "sk-secret" not in str(caught.value)


def test_ends_of_lines_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    read = TomlFile.read(path)
    made = read.with_table(("a", "d"), {"k": True}, after=("a",)).with_value(("a", "x"), 2)
    assert made.text.count("\r\n") == made.text.count("\n") == TEXT.count("\n") + 3
    assert made.get(("a", "d")) == {"k": True}


def test_a_mark_at_the_beginning_stays_there() -> None:
    made = file(f"\ufeff{TEXT}").with_value(("a", "x"), 2).with_table(("new",), {"k": 1})
    assert made.text == "\ufeff" + TEXT.replace("x = 1", "x = 2") + "\n[new]\nk = 1\n"


def test_a_value_is_removed_and_its_neighbours_stay() -> None:
    made = file(TEXT).without(("a", "b", "y"))
    assert made.text == TEXT.replace('y = "two"\n', "")
    inline = file("a = { b = 1, c = 2 } # mine\n").without(("a", "c"))
    assert inline.data == {"a": {"b": 1}}
    assert "# mine" in inline.text
