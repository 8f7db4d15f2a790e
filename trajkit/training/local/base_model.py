"""Load the base model of a training, with the adapter to train."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from trajkit._core.lazy import need
from trajkit._core.outside import problem_of
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError
from trajkit.models.generation.located import adapter_settings
from trajkit.models.generation.weights import no_model, old_names, with_adapter
from trajkit.schema.base import JsonObject
from trajkit.training.local.loss import LOGITS_AT_ONCE
from trajkit.training.local.recipe import LocalRecipe, LoraRecipe
from trajkit.training.local.shape import Shape, shape_of

_SHORT = 8


class Stored(NamedTuple):
    """Bytes for each token of a batch."""

    kept: int
    """Kept from the forward pass until the gradient is computed."""
    in_layer: int
    """Added for the gradients of a layer: those of its widest states, and recomputed values."""


class Sizes(NamedTuple):
    """The size of a model."""

    n_weights: int
    """Number of weights, including the adapter's."""
    n_trainable: int
    """Number of trained weights."""
    n_positions: int | None
    """Context length in tokens; None if its configuration does not give it."""
    n_vocabulary: int
    """Size of its vocabulary."""
    can_share: bool = False
    """Whether rows that begin alike can have that beginning in common (`can_share`)."""
    stored: Stored | None = None
    """Memory of a batch per token; None if it cannot be counted."""
    shape: Shape | None = None
    """The parts of it; None if its configuration has unusual names."""


def settled(base: str) -> str:
    """Make a model's folder absolute, because the training process has another working folder."""
    return str(Path(base).resolve()) if Path(base).is_dir() else base


def check_model(base: str) -> Any:
    """Return a model's configuration. A wrong name fails here, before anything is written.

    Raises:
        RequestError: There is no such model.
        MissingExtra: transformers is not installed.
    """
    try:
        return pretrained(need("transformers", extra="local").AutoConfig, base)
    except (OSError, ValueError) as error:
        raise no_model(base, error) from error


def load_base(base: str, recipe: LocalRecipe) -> Any:
    """Load the base model with the adapter to train.

    Raises:
        RequestError: There is no such model, or this machine cannot load it as the recipe says.
        MissingExtra: torch, transformers or peft is not installed.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    torch.manual_seed(recipe.seed)
    if recipe.load_in is not None and not torch.cuda.is_available():
        raise RequestError(f"load_in {recipe.load_in} needs a GPU", hint="leave it out")
    options: dict[str, Any] = {"dtype": torch.bfloat16 if precision(recipe) == "bf16" else torch.float32}
    if recipe.lora is None:
        options["dtype"] = torch.float32  # all weights are trained, and rounding would lose small updates
    if recipe.load_in is not None:
        need("bitsandbytes", extra="cuda")
        quantised = {f"load_in_{recipe.load_in}": True}
        options["quantization_config"] = transformers.BitsAndBytesConfig(**quantised)
    try:
        model = pretrained(transformers.AutoModelForCausalLM, base, **options)
    except (OSError, ValueError) as error:
        raise no_model(base, error) from error
    model = model if recipe.lora is None else _with_adapter(model, recipe.lora)
    if recipe.torch_compile:
        layer = need("transformers.modeling_layers", extra="local").GradientCheckpointingLayer
        for module in model.modules():
            if isinstance(module, layer):  # all have the same code, which is compiled once
                module.compile()
    return model


def measured(base: str, recipe: LocalRecipe) -> Sizes:
    """Return the size of a model from its configuration, without loading weights.

    Raises:
        RequestError: There is no such model, or it lacks the layers in the recipe.
        MissingExtra: torch, transformers or peft is not installed.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    config = check_model(base)
    try:
        with torch.device("meta"):
            # counted in 32 bits, whatever the model's own precision is
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
            if recipe.lora is not None:
                # DoRA would read the weights, and adds one weight per output of a layer
                plain = recipe.lora.model_copy(update={"use_dora": False, "adapter": ""})
                model = _with_adapter(model, plain)
    except (OSError, ValueError) as error:
        raise no_model(base, error) from error
    n_weights, n_trainable = count(model)
    shape, stored = shape_of(model), _stored(model, recipe)
    if recipe.lora is not None and recipe.lora.use_dora:
        n_more = sum(
            module.lora_B["default"].out_features for module in model.modules() if hasattr(module, "lora_B")
        )
        n_weights, n_trainable = n_weights + n_more, n_trainable + n_more
    text = config.get_text_config()
    found = getattr(text, "max_position_embeddings", None)
    n_positions = found if isinstance(found, int) and found > 0 else None
    return Sizes(n_weights, n_trainable, n_positions, text.vocab_size, can_share(config), stored, shape)


def can_share(config: Any) -> bool:
    """Whether a model gives a token the same state when rows share their beginning.

    It does if each layer attends to all tokens that a mask allows, and positions are given with the tokens.
    """
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None) or ["full_attention"]
    limits = ("sliding_window", "attention_chunk_size")
    return (
        getattr(text, "rope_parameters", None) is not None
        and set(kinds) == {"full_attention"}
        and all(getattr(text, name, None) is None for name in limits)
    )


def least_memory(recipe: LocalRecipe, sizes: Sizes) -> int:
    """Return the bytes of weights, gradients and optimizer state, which do not depend on the batch."""
    per_weight = 2 if precision(recipe) == "bf16" else 4
    # adapters have 32 bits per weight, and so does a model whose weights are all trained
    per_trained = 4 + 4 + (8 if recipe.optim.startswith("adam") else 2 if "8bit" in recipe.optim else 0)
    n_frozen = sizes.n_weights - sizes.n_trainable
    n_exact = n_frozen
    if recipe.load_in is not None:
        n_exact = 0 if sizes.shape is None else sizes.shape.n_ends
    # 4 bits, and a 32-bit scale for 64 weights (Dettmers et al. 2023, "QLoRA", section 3)
    per_quantised = 1.0 if recipe.load_in == "8bit" else 0.5 + 4 / 64
    n_quantised = n_frozen - n_exact
    return round(n_exact * per_weight + n_quantised * per_quantised + sizes.n_trainable * per_trained)


def batch_memory(sizes: Sizes, n_tokens: int, n_learned: int) -> int | None:
    """Return the bytes that a batch takes besides `least_memory`; None if they cannot be counted.

    Memory peaks in the output layer or in a layer: the gradient of a cross-entropy has three tensors of
    the logits' size in 32 bits.

    Args:
        sizes: The model.
        n_tokens: Tokens of the batch, with its padding.
        n_learned: Tokens of it that are learned.
    """
    if sizes.stored is None:
        return None
    n_logits = min(n_learned * sizes.n_vocabulary, LOGITS_AT_ONCE)
    return n_tokens * sizes.stored.kept + max(12 * n_logits, n_tokens * sizes.stored.in_layer)


def _n_bytes(recipe: LocalRecipe) -> int:
    return 4 if precision(recipe) == "fp32" else 2


def _stored(model: Any, recipe: LocalRecipe) -> Stored | None:
    """Count the bytes that a model on the device `meta` stores of each token.

    The model's own code runs on a short row without values. The count grows with the tokens alone, because
    attention stores no scores (Dao et al. 2022, "FlashAttention"); `meta` stores them: hence the short row.
    With checkpoints, one layer at a time has all that it would have without (Chen et al. 2016, "Training deep
    nets with sublinear memory cost").
    """
    model.train()
    config = model.config.get_text_config()
    try:
        kept = _n_stored(model, recipe)
        again = 0.0
        if recipe.gradient_checkpointing:
            model.activation_checkpointing_enable()
            model.enable_input_require_grads()
            kept, again = _n_stored(model, recipe), kept / config.num_hidden_layers
        n_inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        # the gradients of both factors, of the activation and of their product
        return Stored(round(kept), round(again + 3 * n_inner * _n_bytes(recipe)))
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None  # its code needs values, or its configuration has other names


def _n_stored(model: Any, recipe: LocalRecipe) -> float:
    """Count the bytes that a forward pass stores per token, in the precision of a training.

    A norm computes in 32 bits. Kernels of liger and compiled layers store only the input of a norm or an
    activation (Hsu et al. 2024, "Liger kernel", section 3.2).
    """
    torch = need("torch", extra="local")
    is_fused = recipe.use_liger_kernel or recipe.torch_compile
    share = _n_bytes(recipe) / 4  # of a 32-bit number
    stored: dict[int, tuple[Any, float]] = {}
    within: list[int] = []

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if not within or (is_fused and storage._cdata == within[-1]):
            stored.setdefault(storage._cdata, (storage, share))  # kept, so that no other one gets its address
        elif not is_fused and storage._cdata not in weights:
            stored[storage._cdata] = (storage, 1.0)
        return tensor

    def enter(module: Any, inputs: tuple[Any, ...]) -> None:
        within.append(inputs[0].untyped_storage()._cdata)

    def leave(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        within.pop()
        if not _is_norm(module):
            storage = output.untyped_storage()
            stored[storage._cdata] = (storage, 0.0)

    for parameter in model.parameters():
        storage = parameter.untyped_storage()
        stored[storage._cdata] = (storage, 0.0)
    weights = set(stored)
    hooks = [
        hook
        for name, module in model.named_modules()
        if _is_norm(module) or (is_fused and name.endswith(".act_fn"))
        for hook in (module.register_forward_pre_hook(enter), module.register_forward_hook(leave))
    ]
    tokens = torch.zeros((1, _SHORT), dtype=torch.long, device="meta")
    # else it looks for packed rows
    mask = torch.ones((1, 1, _SHORT, _SHORT), dtype=torch.bool, device="meta")
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(input_ids=tokens, attention_mask=mask, use_cache=False, logits_to_keep=1)
    finally:
        for hook in hooks:
            hook.remove()
    return float(sum(storage.nbytes() * part for storage, part in stored.values())) / _SHORT


def _is_norm(module: Any) -> bool:
    return type(module).__name__.endswith(("RMSNorm", "LayerNorm"))


def count(model: Any) -> tuple[int, int]:
    """Count the weights of a model, and the trained ones among them."""
    sizes = [(_n_weights(parameter), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)


def _n_weights(parameter: Any) -> int:
    # a quantised layer stores two 4-bit weights per byte
    quantised = getattr(parameter, "quant_state", None)
    return int(quantised.shape.numel()) if quantised is not None else int(parameter.numel())


def precision(recipe: LocalRecipe) -> str:
    """Return `fp32`, `bf16` or `fp16`: the recipe's precision, or the best one of this machine."""
    if recipe.precision != "auto":
        return recipe.precision
    torch = need("torch", extra="local")
    if not torch.cuda.is_available():
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"


def merge(base: str, adapter: Path, goal: Path, recipe: LocalRecipe) -> None:
    """Merge base and adapter into one model, which loads without peft.

    Args:
        base: Folder or id of the base model.
        adapter: Folder of the adapter.
        goal: Folder for the merged model.
        recipe: Settings of the adapter's training.
    """
    torch = need("torch", extra="local")
    transformers = need("transformers", extra="local")
    peft = need("peft", extra="local")
    kind = torch.bfloat16 if precision(recipe) == "bf16" else torch.float32
    model = pretrained(transformers.AutoModelForCausalLM, base, dtype=kind)
    with old_names():
        merged = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()
    merged.save_pretrained(goal)


def _with_adapter(model: Any, lora: LoraRecipe) -> Any:
    if lora.adapter:
        return with_adapter(model, lora.adapter, "default", said=lora.adapter, is_trained=True)
    peft = need("peft", extra="local")
    options = lora.model_dump(exclude={"adapter"})
    if isinstance(options["target_modules"], tuple):
        options["target_modules"] = list(options["target_modules"])
    try:
        with old_names():
            return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options))
    except ValueError as error:  # the model has no layer with such a name
        raise RequestError(str(error).splitlines()[0], hint="target_modules: all-linear") from error


def going_on(recipe: JsonObject, adapter: str) -> JsonObject:
    """Return the fields of a recipe with the settings of an adapter that the training continues.

    Args:
        recipe: Fields as the user gives them.
        adapter: Folder of the adapter.

    Raises:
        RequestError: The recipe has other settings, or the adapter is not a LoRA adapter.
    """
    told = adapter_settings(adapter) or {}
    if told.get("peft_type") != "LORA":
        raise RequestError(f"{adapter} is an adapter of type {told.get('peft_type')}, not LoRA")
    settings = {name: told[name] for name in LoraRecipe.model_fields if told.get(name) is not None}
    try:
        own = LoraRecipe(**settings | {"adapter": adapter})
    except ValidationError as error:  # such as a pattern of layers
        raise RequestError(f"{adapter} cannot be trained further: {problem_of(error)}") from error
    given: Any = recipe.get("lora", {})
    hint = "leave it out; or train a new adapter on a merged model (`--merge` of the adapter's job)"
    if given is None:
        raise RequestError(f"{adapter} is an adapter, and lora=null trains all weights", hint=hint)
    for name, value in given.items():
        if name in LoraRecipe.model_fields and getattr(own, name) != value:
            raise RequestError(f"{adapter} has {name}={getattr(own, name)}, not {value}", hint=hint)
    return {**recipe, "lora": {**given, **own.model_dump()}}


def held(recipe: LocalRecipe, sizes: Sizes, n: int) -> int:
    """Return the bytes that each of `n` processes holds besides its batch if a model is sharded.

    Each has 1/n of weights, gradients and optimizer states (Rajbhandari et al. 2020, "ZeRO", table 1, the
    line of all three), and, unsharded, what it computes with: two layers, one of them in transit, the
    embedding and the output layer, and the gradients of the trained ones.

    Args:
        recipe: Settings of the training.
        sizes: The model.
        n: Number of processes; with 1, nothing is sharded.
    """
    least = least_memory(recipe, sizes)
    if n == 1 or sizes.shape is None:
        return least // n
    whole = 2 * sizes.shape.n_largest + sizes.shape.n_ends
    if recipe.lora is None:
        whole += sizes.shape.n_largest + sizes.shape.n_ends
    return least // n + whole * (4 if precision(recipe) == "fp32" else 2)


def begin_sharded() -> None:
    """Let only the first process of this machine read the weights; call it before the model is loaded."""
    os.environ["ACCELERATE_USE_FSDP"] = os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "true"
    torch = need("torch", extra="local")
    need("accelerate", extra="local").PartialState(cpu=not torch.cuda.is_available())


def shard_on_cpus(arguments: Any) -> None:
    """Make a Trainer with these arguments shard on CPUs too: accelerate 1.15 does that on GPUs alone."""
    state, kinds = arguments.distributed_state, need("accelerate", extra="local").DistributedType
    if state.distributed_type == kinds.MULTI_CPU:
        state.distributed_type = kinds.MULTI_GPU


def gathered(model: Any) -> dict[str, Any]:
    """Return the trained weights, whole, in the first process; every process must call it."""
    states = need("torch.distributed.checkpoint.state_dict", extra="local")
    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    weights: dict[str, Any] = states.get_model_state_dict(model, options=options)
    return weights
