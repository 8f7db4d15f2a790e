from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trajkit.cli.main import run
from trajkit.commands.options.request import recipe
from trajkit.errors import RequestError
from trajkit.formats import format_named
from trajkit.formats.base import SftFormat, Training, Unit
from trajkit.store.dataset import open_dataset
from trajkit.training.local.recipe import LocalRecipe
from trajkit.training.local.settings import preset_fields, presets, read_settings


def said(tmp_path: Path, text: str) -> LocalRecipe:
    file = tmp_path / "train.yaml"
    file.write_text(text)
    return recipe(LocalRecipe, read_settings(file).recipe)


def test_a_file_of_axolotl_is_a_recipe(tmp_path: Path) -> None:
    found = said(
        tmp_path,
        """
        base_model: Qwen/Qwen3-0.6B
        adapter: qlora
        lora_r: 32
        lora_alpha: 16
        lora_dropout: 0.05
        lora_target_modules: [q_proj, v_proj]
        sequence_len: 4096
        sample_packing: true
        micro_batch_size: 2
        gradient_accumulation_steps: 4
        num_epochs: 1
        optimizer: adamw_torch
        lr_scheduler: linear
        learning_rate: 1.0e-4
        warmup_ratio: 0.1
        bf16: true
        gradient_checkpointing: true
        """,
    )
    assert found == LocalRecipe.model_validate(
        {
            "lora": {"r": 32, "lora_alpha": 16, "lora_dropout": 0.05, "target_modules": ["q_proj", "v_proj"]},
            "load_in": "4bit",
            "max_length": 4096,
            "packing": True,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 4,
            "num_train_epochs": 1,
            "optim": "adamw_torch",
            "lr_scheduler_type": "linear",
            "learning_rate": 1e-4,
            "warmup_steps": 0.1,
            "precision": "bf16",
            "gradient_checkpointing": True,
        }
    )


def test_the_file_that_convert_writes_for_axolotl_can_be_read(tmp_path: Path) -> None:
    form = format_named("axolotl")
    assert isinstance(form, SftFormat)
    assert form.files is not None
    training = Training(data="rows.jsonl", unit=Unit.EPISODE, model="some/model", max_tokens=512)
    file = tmp_path / "train.yaml"
    file.write_text(form.files(training)["train.yaml"])
    found = read_settings(file)
    assert found.base_model == "some/model"
    assert recipe(LocalRecipe, found.recipe).max_length == 512
    assert found.ignored == ("datasets", "output_dir", "chat_template")


def test_without_an_adapter_all_weights_are_trained(tmp_path: Path) -> None:
    assert said(tmp_path, "adapter: null\n").lora is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("lora_rank: 8\n", "lora_rank"),
        ("lora_r: eight\n", "lora_r"),
        ("- a list\n", "has no settings"),
        ("a: [\n", "is not YAML"),
    ],
    ids=["key", "value", "list", "text"],
)
def test_what_cannot_be_a_setting_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        said(tmp_path, text)


def test_fsdp_of_axolotl_shares_the_model_out(tmp_path: Path) -> None:
    text = "fsdp_version: 2\nfsdp_config: {state_dict_type: FULL_STATE_DICT, reshard_after_forward: true}"
    assert said(tmp_path, text).fsdp
    with pytest.raises(RequestError, match="offload_params"):
        said(tmp_path, "fsdp_config: {offload_params: true}")


def test_options_go_before_the_file_and_the_file_before_the_preset(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.yaml").write_text(yaml.safe_dump({"base_model": base, "lora_r": 3, "sequence_len": 5000}))
    head = open_dataset("sample:babyai").where("purpose = 'train'").limit(4)
    head.save(Path("few"))
    common = ["--train", "few", "--dry-run", "--preset", "llama", "--config", "train.yaml"]
    assert run(["sft", "local", *common, "--lora-alpha", "7"]) == 0
    plan = capsys.readouterr().err
    assert "LoRA of rank 3, alpha 7" in plan
    assert "learning rate 0.013" in plan  # 0.0005 * (2000 / 32) ** 0.781, the preset's
    assert run(["sft", "local", "--dry-run"]) == 2
    assert "no model is given" in capsys.readouterr().err
    for name in ("../evil", "a/b", "", ".."):
        assert run(["sft", "local", "--train", "few", "--model", base, "--name", name, "--yes"]) == 2
        assert f"{name!r} cannot be the name of a job" in capsys.readouterr().err
    assert not Path("evil").exists()


def test_every_preset_is_a_recipe_with_a_source() -> None:
    for preset in presets().values():
        assert preset.source.startswith("https://")
        recipe(LocalRecipe, preset.recipe)


def test_a_preset_for_another_family_is_refused(base: str) -> None:
    with pytest.raises(RequestError, match="'llama'") as refused:
        preset_fields("qwen", base)
    assert refused.value.hint == "--preset llama"
    with pytest.raises(RequestError, match="no preset 'gpt'"):
        preset_fields("gpt", base)
