"""Which configuration renders a prompt, when a database holds several and a file may stand in their place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from trajkit.errors import ConfigError, QueryError
from trajkit.sources.tensorzero.connect import tables
from trajkit.sources.tensorzero.render.snapshots import TemplateSource

pytest.importorskip("minijinja", reason="pip install 'trajkit[render]'")

INPUT = '{"messages": [{"role": "user", "content": [{"type": "template", "name": "user", "arguments": {}}]}]}'


def config(variant: str, text: str, *, function: str = "f", kind: str = "chat_completion") -> str:
    path = f'{{ __tensorzero_remapped_path = "u", __data = "{text}" }}'
    return (
        f'[functions.{function}]\ntype = "chat"\n[functions.{function}.variants.{variant}]\n'
        f'type = "{kind}"\nmodel = "m"\ntemplates.user.path = {path}\n'
    )


def snapshots(**configs: str) -> list[pa.RecordBatch]:
    """One batch for each, the newest last."""
    return [
        pa.RecordBatch.from_pylist(
            [{"snapshot_hash": name, "config": text, "templates": []}], tables.SNAPSHOTS
        )
        for name, text in configs.items()
    ]


def text(
    source: TemplateSource, snapshot_hash: str | None, variant: str = "v", function: str = "f"
) -> str | None:
    renderer = source.renderer(snapshot_hash, function, variant)
    if renderer is None:
        return None
    return renderer.prompt(INPUT).messages.split('"text":"')[1].partition('"')[0]


def test_the_configuration_of_the_row_comes_first_then_the_newest_that_has_the_variant() -> None:
    source = TemplateSource(
        snapshots(a=config("v", "oldest"), b=config("v", "newer"), c=config("w", "without"), d="not [ TOML"),
        None,
    )
    assert text(source, "a") == "oldest"
    assert text(source, "b") == "newer"
    for snapshot_hash in ("c", "d", "unknown", None):
        assert text(source, snapshot_hash) == "newer"
    assert text(source, "a", "w") == "without"
    assert text(source, "a", "x") is None
    assert text(source, "a", "v", "g") is None


def test_a_file_stands_in_the_place_of_all(tmp_path: Path) -> None:
    (tmp_path / "u").write_text("from the file")
    (tmp_path / "tensorzero.toml").write_text(
        '[functions.f.variants.v]\ntype = "chat_completion"\nmodel = "m"\ntemplates.user.path = "u"\n'
    )
    source = TemplateSource(snapshots(a=config("v", "old")), tmp_path / "tensorzero.toml")
    assert text(source, "a") == "from the file"
    source.check(["f"], "v")
    with pytest.raises(QueryError, match="function 'f' has no variant 'w'"):
        source.check(["f"], "w")


def test_what_cannot_be_rendered_is_said_before_anything_is_read() -> None:
    with pytest.raises(QueryError, match="the database holds no configuration") as caught:
        TemplateSource([], None).check(["f"], "v")
    assert caught.value.hint == "--config names the gateway's tensorzero.toml"
    source = TemplateSource(snapshots(a=config("v", "one"), b=config("w", "two", kind="other")), None)
    source.check(["f"], "v")
    with pytest.raises(QueryError, match="function 'f' has no variant 'x'") as caught:
        source.check(["f"], "x")
    assert caught.value.hint == "it has v, w"
    with pytest.raises(QueryError, match="function 'g' has no variant 'v'") as caught:
        source.check(["f", "g"], "v")
    assert caught.value.hint == "--config names its tensorzero.toml"
    with pytest.raises(ConfigError, match="is of type other"):
        source.check(["f"], "w")
