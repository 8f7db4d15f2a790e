"""A model's repository: what it needs to run, and a card that says what it was made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from trajkit.errors import DataError, RequestError
from trajkit.publishing.card import CardWish
from trajkit.publishing.model import Measured, ModelContents, Origin, make_model_contents

WRITTEN = (
    "---\nlicense: unknown\nlibrary_name: peft\ntags: [trajkit, sft, lora]\n---\n# job\n\n"
    "**Licence: unknown.** It follows from others, which trajkit does not\nknow.\n\n"
    "**Not evaluated.** The losses say little.\n\n## Data\n"
)


MAIL = "joe.doe" + "@corp.io"


def weights(**metadata: str) -> bytes:
    """A file of safetensors without a tensor, as its format describes it."""
    header = json.dumps({"__metadata__": metadata}).encode()
    return len(header).to_bytes(8, "little") + header


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(weights())
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/home/me/base"}))
    (folder / "training_args.bin").write_bytes(b"pickled")
    (folder / "optimizer.pt").write_bytes(b"state")
    (folder / "README.md").write_text(WRITTEN)
    return folder


def contents(model: Path, **options: object) -> ModelContents:
    folder = model.parent / "repo"
    folder.mkdir()
    wish = CardWish(repository="me/model", license="apache-2.0")
    origin = options.pop("origin", Origin(base="org/base", data_digest="d" * 64, dataset="me/data"))
    return make_model_contents(model, folder, wish, origin, **options)  # type: ignore[arg-type]


def test_only_what_a_model_needs_is_sent_with_the_base_as_the_hub_calls_it(adapter: Path) -> None:
    made = contents(adapter)
    assert [file.path for file in made.record.files] == ["adapter_config.json", "adapter_model.safetensors"]
    assert made.is_adapter
    settings = json.loads((made.folder / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "org/base"
    own = json.loads((adapter / "adapter_config.json").read_text())
    assert own["base_model_name_or_path"] == "/home/me/base"
    card = (made.folder / "README.md").read_text()
    assert "**None.** No evaluation was given" in card
    assert "2 files of text were searched, and nothing was found." in card


def test_a_base_that_nobody_else_has_is_refused_without_its_path(adapter: Path) -> None:
    with pytest.raises(RequestError, match="the base 'base' is a local path") as raised:
        contents(adapter, origin=Origin())
    assert "/home/me" not in str(raised.value)


def test_the_card_says_base_digest_licence_and_evaluation(adapter: Path) -> None:
    measured = Measured(headings=("variant", "success"), rows=(("tuned", "0.900 [0.8, 1.0]"),), said="Of 20.")
    card = (contents(adapter, measured=measured).folder / "README.md").read_text()
    front, body = card.split("---\n")[1:]
    fields = yaml.safe_load(front)
    assert fields["base_model"] == "org/base"
    assert fields["base_model_relation"] == "adapter"
    assert (fields["license"], fields["datasets"]) == ("apache-2.0", ["me/data"])
    assert fields["tags"] == ["trajkit", "sft", "lora"]
    assert "d" * 64 in body
    assert "| tuned | 0.900 [0.8, 1.0] |" in body
    assert "Licence: unknown" not in body
    assert "Not evaluated" not in body


def test_a_model_without_a_card_gets_one(adapter: Path) -> None:
    (adapter / "README.md").unlink()
    assert "# model" in (contents(adapter).folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "data", "error", "said"),
    [
        ("README.md", b"---\na: [\n---\n", DataError, "is not valid YAML"),
        ("adapter_model.safetensors", None, RequestError, "has no weights"),
        ("adapter_model.safetensors", b"weights", DataError, "does not begin as safetensors do"),
    ],
)
def test_damaged_files_and_a_folder_without_weights_are_not_sent(
    adapter: Path, name: str, data: bytes | None, error: type[Exception], said: str
) -> None:
    (adapter / name).unlink()
    if data is not None:
        (adapter / name).write_bytes(data)
    with pytest.raises(error, match=said):
        contents(adapter)


def test_a_whole_model_does_not_say_where_it_lay(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(weights())
    (model / "config.json").write_text(json.dumps({"_name_or_path": "/home/me/base", "model_type": "llama"}))
    made = contents(model)
    assert json.loads((made.folder / "config.json").read_text()) == {"model_type": "llama"}
    assert yaml.safe_load((made.folder / "README.md").read_text().split("---\n")[1])["library_name"] == (
        "transformers"
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("README.md", f"# mine\n\nAsk {MAIL}.\n".encode()),
        ("adapter_config.json", json.dumps({"revision": f"by {MAIL}"}).encode()),
        ("tokenizer_config.json", json.dumps({"chat_template": f"You work for {MAIL}."}).encode()),
        ("chat_template.jinja", f"{{# {MAIL} #}}".encode()),
        ("adapter_model.safetensors", weights(by=MAIL)),
    ],
)
def test_every_text_of_a_model_is_searched(adapter: Path, name: str, data: bytes) -> None:
    (adapter / name).write_bytes(data)
    made = contents(adapter)
    assert [(each.kind, each.place, each.n_found) for each in made.scanned.found] == [("email", name, 1)]
    assert f"- 1 email in {name}" in (made.folder / "README.md").read_text()


def test_patterns_of_the_user_hold_for_models_too(adapter: Path) -> None:
    made = contents(adapter, patterns={"title": "job"})
    assert made.scanned.n_by_kind == {"title": 1}


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "README.md", "tokenizer.json"])
def test_a_link_out_of_the_folder_is_not_sent(adapter: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "secret"
    outside.write_bytes(weights(secret="hunter2"))
    (adapter / name).unlink(missing_ok=True)
    (adapter / name).symlink_to(outside)
    with pytest.raises(DataError, match="is a link to a file outside"):
        contents(adapter)
