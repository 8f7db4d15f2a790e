"""Settings of a training from elsewhere: a YAML file with axolotl's names, and presets of model families."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import Field, ValidationError, create_model

from trajkit._core.lazy import need
from trajkit._core.outside import problem_of, text_from_outside
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError
from trajkit.schema import Model
from trajkit.schema.base import JsonObject
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe

_PRESETS = Path(__file__).with_name("presets.json")
_HIDDEN_SIZE = 2000
_AXOLOTL = {
    "sequence_len": "max_length",
    "sample_packing": "packing",
    "micro_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "num_epochs": "num_train_epochs",
    "lr_scheduler": "lr_scheduler_type",
    "optimizer": "optim",
    "lora_r": "lora.r",
    "lora_alpha": "lora.lora_alpha",
    "lora_dropout": "lora.lora_dropout",
    "lora_target_modules": "lora.target_modules",
    "peft_use_rslora": "lora.use_rslora",
    "peft_use_dora": "lora.use_dora",
}
"""axolotl's names of fields of the recipe; other fields have the same name in both."""
_SAME = (
    "gradient_accumulation_steps",
    "learning_rate",
    "weight_decay",
    "max_grad_norm",
    "warmup_steps",
    "max_steps",
    "eval_steps",
    "torch_compile",
    "gradient_checkpointing",
    "early_stopping_patience",
    "seed",
)


class _Fsdp(Model):
    """axolotl's settings of FSDP that trajkit has."""

    reshard_after_forward: Literal[True] = True
    """Weights are released after the forward pass."""
    auto_wrap_policy: Literal["TRANSFORMER_BASED_WRAP"] = "TRANSFORMER_BASED_WRAP"
    """Each layer is sharded separately."""
    transformer_layer_cls_to_wrap: Any = None
    """Not read: transformers finds the layers of a model."""
    state_dict_type: Literal["FULL_STATE_DICT"] = "FULL_STATE_DICT"
    """Checkpoints have whole weights."""
    cpu_ram_efficient_loading: Literal[True] = True
    """The first process alone reads the weights."""


class _Switches(Model):
    """Settings that correspond to several fields of the recipe."""

    base_model: Annotated[str | None, Field(min_length=1)] = None
    """The model, where `--model` names none."""
    adapter: Literal["lora", "qlora"] | None = "lora"
    """`qlora` quantises the model to 4 bits; null trains all weights."""
    lora_target_linear: bool | None = None
    """true: all linear layers get an adapter."""
    load_in_4bit: bool = False
    """Quantise the model to 4 bits."""
    load_in_8bit: bool = False
    """Quantise the model to 8 bits."""
    bf16: bool | Literal["auto"] = "auto"
    """true: train in bf16; false: in 32 bits, or in 16 with `fp16`."""
    fp16: bool = False
    """Train in 16 bits with a scaled loss."""
    warmup_ratio: Annotated[float | None, Field(ge=0, lt=1)] = None
    """Share of the steps that warm up, instead of `warmup_steps`."""
    fsdp_version: Literal[2] | None = None
    """Shard the model across the processes (`fsdp` in a recipe)."""
    fsdp_config: _Fsdp | None = None
    """The same."""
    datasets: Any = None
    """Not read: the data is a store (`--train`)."""
    val_set_size: Any = None
    """Not read: `--val-fraction` cuts whole worlds off."""
    output_dir: Any = None
    """Not read: a job has a folder of its own (`--runs`, `--name`)."""
    chat_template: Any = None
    """Not read: `--chat-template`."""


def _fields() -> dict[str, Any]:
    """The recipe's fields under axolotl's names; None if a file does not set it."""
    found: dict[str, Any] = {}
    for name in (*_AXOLOTL, *_SAME):
        group, _, last = _AXOLOTL.get(name, name).rpartition(".")
        field = (LoraRecipe if group else LocalRecipe).model_fields[last]
        kind: Any = field.annotation if not field.metadata else Annotated[(field.annotation, *field.metadata)]
        found[name] = (kind | None, Field(None, description=field.description))
    return found


TrainingFile: type[_Switches] = create_model(
    "TrainingFile",
    __base__=_Switches,
    __doc__="A training in YAML, by the names that axolotl gives its settings.",
    **_fields(),
)


class Preset(Model):
    """Settings that suit a family of models."""

    model_types: tuple[str, ...]
    """The `model_type`s of its configurations."""
    learning_rate: float
    """Peak learning rate of an adapter at a hidden size of 2,000."""
    learning_rate_exponent: float
    """The rate is multiplied by (2000 / hidden size) to this power."""
    recipe: JsonObject
    """Other fields of the recipe."""
    source: str
    """Source of the values."""


def presets() -> dict[str, Preset]:
    """Return the presets by name."""
    found = json.loads(_PRESETS.read_text(encoding="utf-8"))
    return {
        name: Preset.model_validate(value | {"model_types": tuple(value["model_types"])})
        for name, value in found.items()
    }


def preset_fields(name: str, base: str) -> JsonObject:
    """Return the fields of the recipe that a preset gives for a model.

    Args:
        name: The preset.
        base: The model.

    Raises:
        RequestError: There is no such preset, or it is for another family of models.
    """
    known = presets()
    if name not in known:
        raise RequestError(f"no preset {name!r}", hint=f"presets: {', '.join(known)}")
    preset = known[name]
    config = pretrained(need("transformers", extra="local").AutoConfig, base).get_text_config()
    if config.model_type not in preset.model_types:
        fitting = [other for other, each in known.items() if config.model_type in each.model_types]
        hint = f"--preset {fitting[0]}" if fitting else "leave --preset out"
        raise RequestError(f"--preset {name} is not for a model of type {config.model_type!r}", hint=hint)
    scale = (_HIDDEN_SIZE / config.hidden_size) ** preset.learning_rate_exponent
    return {**preset.recipe, "learning_rate": float(f"{preset.learning_rate * scale:.2g}")}


class Settings(NamedTuple):
    """The content of a file."""

    base_model: str | None
    """The model; None if the file names none."""
    recipe: dict[str, Any]
    """Fields of the recipe."""
    ignored: tuple[str, ...]
    """Keys that are not read, because options of the command set the same."""


def read_settings(path: Path) -> Settings:
    """Read a YAML file with the settings of a training.

    Raises:
        RequestError: It cannot be read, or it has an unknown key or an invalid value.
    """
    text = text_from_outside(path, error=RequestError)
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RequestError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(said, dict):
        raise RequestError(f"{path} has no settings: NAME: VALUE on each line")
    try:
        file = TrainingFile.model_validate(said)
    except ValidationError as error:
        raise RequestError(f"{path}: {problem_of(error)}", hint="docs/train.md lists the settings") from error
    given: dict[str, Any] = {
        _AXOLOTL.get(name, name): getattr(file, name)
        for name in (*_AXOLOTL, *_SAME)
        if getattr(file, name) is not None
    }
    lora = {name.removeprefix("lora."): value for name, value in given.items() if name.startswith("lora.")}
    if file.lora_target_linear:
        lora["target_modules"] = "all-linear"
    recipe = {name: value for name, value in given.items() if not name.startswith("lora.")}
    recipe["lora"] = lora if file.adapter else None
    if file.warmup_ratio is not None:
        recipe["warmup_steps"] = file.warmup_ratio
    if file.load_in_4bit or file.adapter == "qlora":
        recipe["load_in"] = "4bit"
    elif file.load_in_8bit:
        recipe["load_in"] = "8bit"
    if file.fp16 or file.bf16 != "auto":
        recipe["precision"] = "fp16" if file.fp16 else "bf16" if file.bf16 else "fp32"
    if file.fsdp_version is not None or file.fsdp_config is not None:
        recipe["fsdp"] = True
    ignored = tuple(
        name for name in ("datasets", "val_set_size", "output_dir", "chat_template") if name in said
    )
    return Settings(base_model=file.base_model, recipe=recipe, ignored=ignored)
