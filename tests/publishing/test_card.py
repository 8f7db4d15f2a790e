"""The card of a dataset: metadata that the Hub's own library reads, and everything the stores say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trajkit.curation.replay import replay
from trajkit.errors import RequestError
from trajkit.publishing.card import CardWish, check_wish, dataset_card, size_category
from trajkit.publishing.contents import make_contents
from trajkit.publishing.facts import facts_of, splits_of
from trajkit.publishing.hub import Hub
from trajkit.schema import Episode, Transition, message
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


def test_the_metadata_is_what_the_hubs_library_reads(sides: Path, tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard

    text = card(tmp_path / "repo", sides, license="apache-2.0", languages=("en", "de"), tags=("robots",))
    data = DatasetCard(text).data
    assert (data.license, data.language, data.pretty_name) == ("apache-2.0", ["en", "de"], "data")
    assert data.tags == ["trajkit", "agent", "robots"]
    assert data.size_categories == ["1K<n<10K"]
    configs = data.to_dict()["configs"]
    assert [each["config_name"] for each in configs] == ["sft", "episodes", "steps", "feedback"]
    assert [each.get("default") for each in configs] == [True, None, None, None]
    assert configs[0]["data_files"] == [
        {"split": "train", "path": "sft/train-*.parquet"},
        {"split": "val", "path": "sft/val-*.parquet"},
    ]


def test_it_says_how_the_data_was_made_split_and_compared(sides: Path, tmp_path: Path) -> None:
    text = card(tmp_path / "repo", sides)
    for said in (
        "trajkit rollout babyai --variant baseline",
        "trajkit split ",
        "`train` was compared with `val`. No leak was found.",
        "trajkit pull me/data -o data",
        "- **Licence: unknown.**",
        "| `action_executed` | varchar | The action that the environment executed",
        "nothing was found",
        "@misc{me-data,",
    ):
        assert said in text


def test_it_is_the_same_for_the_same_stores(sides: Path, tmp_path: Path) -> None:
    assert card(tmp_path / "one", sides) == card(tmp_path / "two", sides)


def test_it_names_no_path_of_this_machine(sides: Path, tmp_path: Path) -> None:
    text = card(tmp_path / "repo", sides)
    assert str(sides) not in text
    record = (tmp_path / "repo" / "trajkit.json").read_text()
    assert str(sides.parent) not in text + record


def test_it_says_what_was_played_again(tmp_path: Path) -> None:
    replay("sample:babyai", tmp_path / "replayed", only_verified=True)
    assert "55 of 55 episodes matched the environment exactly" in card(
        tmp_path / "repo", tmp_path / "replayed"
    )


def test_it_counts_what_a_search_found_and_never_shows_it(tmp_path: Path) -> None:
    mail = "joe.doe" + "@corp.io"
    text = card(tmp_path / "repo", store(tmp_path / "store", f"write to {mail}"))
    assert "1 email in steps.observation" in text
    assert mail not in text


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


def test_the_hub_takes_the_card(hub: Hub, sides: Path, tmp_path: Path) -> None:
    text = card(tmp_path / "repo", sides, license="apache-2.0", languages=("en", "code"), tags=("robots",))
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


def test_a_name_cannot_break_the_metadata(sides: Path, tmp_path: Path) -> None:
    from huggingface_hub import DatasetCard

    name = 'a: b --- "c" | `d` <script>'
    text = card(tmp_path / "repo", store(tmp_path / "store"), pretty_name=name)
    assert DatasetCard(text).data.pretty_name == name
    assert "<script>" not in text.split("---\n", 2)[2]
