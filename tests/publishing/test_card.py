"""The card of a dataset: metadata that the Hub's own library reads, and everything the stores say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajkit.curation.replays.replay import replay
from trajkit.errors import RequestError
from trajkit.publishing.card import CardWish, check_wish, dataset_card, size_category
from trajkit.publishing.facts import facts_of, splits_of
from trajkit.publishing.files.contents import make_contents
from trajkit.publishing.hub import Hub
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes


def card(folder: Path, *paths: Path, **wish: Any) -> str:
    folder.mkdir()
    splits = splits_of(paths)
    contents = make_contents(splits, folder)
    return dataset_card(contents, facts_of(splits), CardWish(repository="me/data", **wish))


def store(folder: Path, text: str = "look") -> Path:
    step = Transition(
        step_index=0,
        messages=(message("user", text),),
        completion=message("assistant", "go"),
        observation=text,
    )
    write_episodes(folder, [Episode(episode_id="a", source="test", steps=(step,))], kind="test")
    return folder


@pytest.fixture(scope="module")
def repo(sides: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of the sample, with its card."""
    folder = tmp_path_factory.mktemp("card") / "repo"
    text = card(folder, sides, license="apache-2.0", languages=("en", "code"), tags=("robots",))
    (folder / "README.md").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def text(repo: Path) -> str:
    return (repo / "README.md").read_text(encoding="utf-8")


def test_the_metadata_is_what_the_hubs_library_reads(text: str) -> None:
    from huggingface_hub import DatasetCard

    data = DatasetCard(text).data
    assert (data.license, data.language, data.pretty_name) == ("apache-2.0", ["en", "code"], "data")
    assert data.tags == ["trajkit", "agent", "robots"]
    assert data.size_categories == ["1K<n<10K"]
    configs = data.to_dict()["configs"]
    assert [each["config_name"] for each in configs] == ["sft", "episodes", "steps", "feedback"]
    assert [each.get("default") for each in configs] == [True, None, None, None]
    assert configs[0]["data_files"] == [
        {"split": "train", "path": "sft/train-*.parquet"},
        {"split": "val", "path": "sft/val-*.parquet"},
    ]


def test_it_says_how_the_data_was_made_split_and_compared(text: str) -> None:
    for said in (
        "trajkit rollout babyai --variant baseline",
        "trajkit split ",
        "`train` was compared with `val`. No leak was found.",
        "trajkit pull me/data -o data",
        "| `action_executed` | varchar | The action that the environment executed",
        "nothing was found",
        "@misc{me-data,",
    ):
        assert said in text


@pytest.mark.full
def test_it_is_the_same_for_the_same_stores_and_never_shows_what_a_search_found(tmp_path: Path) -> None:
    mail = "joe.doe" + "@corp.io"
    made = store(tmp_path / "store", f"write to {mail}")
    one, two = (card(tmp_path / name, made) for name in ("one", "two"))
    assert one == two
    assert "- **Licence: unknown.**" in one
    # it counts what a search found
    assert "1 email in steps.observation" in one
    assert mail not in one


def test_it_names_no_path_of_this_machine(sides: Path, repo: Path, text: str) -> None:
    assert str(sides) not in text
    record = (repo / "trajkit.json").read_text()
    assert str(sides.parent) not in text + record


@pytest.mark.full
def test_it_says_what_was_played_again(sides: Path, tmp_path: Path) -> None:
    n = len(open_dataset(sides / "val"))
    replay(sides / "val", tmp_path / "replayed", only_verified=True)
    said = f"{n} of {n} episodes matched the environment exactly"
    assert said in card(tmp_path / "repo", tmp_path / "replayed")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"license": "My licence"}, "not the identifier of a licence"),
        ({"languages": ("Klingon",)}, "not a language code"),
        ({"languages": ("en-US",)}, "not a language code"),
        ({"tags": ("a\nb",)}, "must be one line"),
        ({"pretty_name": " "}, "must be one line"),
    ],
)
def test_metadata_that_the_hub_would_refuse_is_told(wish: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        check_wish(CardWish(repository="me/data", **wish))


def test_the_hub_takes_the_card(hub: Hub, text: str) -> None:
    hub.check_card(text, "dataset")
    for wrong in (text.replace("1K<n<10K", "n>1B"), text.replace("- en\n", "- en-US\n")):
        assert wrong != text
        with pytest.raises(RequestError, match=r"the Hub refuses the card: .* must be one of"):
            hub.check_card(wrong, "dataset")


@pytest.mark.parametrize("n_rows", [0, 999, 1_000, 5_000_000_000, 20_000_000_000])
def test_every_size_is_one_of_the_hubs(n_rows: int) -> None:
    import datasets

    listed = Path(datasets.__file__).parent / "utils" / "resources" / "size_categories.json"
    assert size_category(n_rows) in json.loads(listed.read_text())


def test_a_name_cannot_break_the_metadata(tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard

    name = 'a: b --- "c" | `d` <script>'
    text = card(tmp_path / "repo", store(tmp_path / "store"), pretty_name=name)
    assert DatasetCard(text).data.pretty_name == name
    assert "<script>" not in text.split("---\n", 2)[2]
