"""Load a causal language model on this machine, with any number of adapters by name."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from trajkit._core.lazy import need
from trajkit._core.output.console import talk
from trajkit.errors import RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import AskError
from trajkit.models.generation.conversations import Conversations
from trajkit.models.generation.located import fingerprint
from trajkit.models.generation.prefix import Prefixes
from trajkit.models.generation.tools.call_style import call_style
from trajkit.models.generation.tools.grammar import Grammars
from trajkit.models.generation.weights import SMALL, default_device, load_base, merged, with_adapter

_ADAPTER = "trajkit_{}"
_LIMITS = (
    "transformers on one device, without a paged cache, fused kernels or several GPUs; for this size, "
    "--policy vllm, --through vllm and `trajkit serve --engine vllm` use a vLLM of your environment"
)
"""Limits of the engine, and the alternatives, for models that are not small."""


class Voice:
    """A model or one of its adapters, with its template and the cache of its prompts.

    Args:
        name: Name in requests.
        template: Tokenizer and chat template.
        network: The network, which adapters share; None if a service answers.
        adapter: The adapter to enable in it; None if it has none, "" to disable all.
        version: Fingerprint of the weights; None when unknown.
    """

    def __init__(
        self,
        name: str,
        template: ChatTemplate,
        network: Any,
        adapter: str | None = None,
        *,
        version: str | None = None,
    ) -> None:
        self.name, self.template, self.adapter, self.version = name, template, adapter, version
        self._network = network
        self.prefixes = Prefixes()
        self.conversations = Conversations(template)
        self.call_style = call_style(template)
        self.is_here = network is not None
        """Whether the network is in this process, so that a grammar can constrain answers."""
        if network is None:
            self.room: int | None = None
            self.stops = template.stops
            self.grammars = Grammars(template, len(template.tokenizer), sorted(self.stops))
            return
        inner = network.get_base_model() if hasattr(network, "get_base_model") else network  # peft's
        takes = inspect.signature(inner.forward).parameters
        self.takes_positions = "position_ids" in takes
        self.takes_keep = "logits_to_keep" in takes
        config = inner.config.get_text_config()
        self.room = getattr(config, "max_position_embeddings", None)
        """Maximum tokens of prompt and answer together; None when the model has no limit."""
        self.stops = template.stops | _stops_of(inner)
        """Tokens that end an answer."""
        n_vocabulary: int = config.vocab_size
        self.grammars = Grammars(template, n_vocabulary, sorted(self.stops))

    @property
    def is_small(self) -> bool:
        """Whether the model is small enough to copy it for each adapter."""
        return int(sum(each.numel() for each in self._network.parameters())) <= SMALL

    @property
    def device(self) -> Any:
        """The device of its weights."""
        return self._network.device

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token, which may be a part of a character."""
        return self.grammars.spelled(token)

    def __call__(self, tokens: Any, seen: Any, positions: Any, past: Any) -> tuple[Any, Any]:
        """Compute the logits of the next token.

        Args:
            tokens: int64 [rows, new].
            seen: int64 [rows, all]; 1 for a token, 0 for padding.
            positions: int64 [rows, new]: position of each token in its row.
            past: Keys and values of earlier tokens; None at the beginning.

        Returns:
            Logits of the next token, float32 [rows, vocabulary], and the keys and values of all tokens.
        """
        self._switch()
        more: dict[str, Any] = {"position_ids": positions} if self.takes_positions else {}
        if self.takes_keep:
            more["logits_to_keep"] = 1
        made = self._network(
            input_ids=tokens, attention_mask=seen, past_key_values=past, use_cache=True, **more
        )
        return made.logits[:, -1].float(), made.past_key_values

    def _switch(self) -> None:
        """Enable this voice's adapter, and no other."""
        if self.adapter == "":
            self._network.base_model.disable_adapter_layers()
        elif self.adapter is not None:
            self._network.base_model.enable_adapter_layers()
            if self._network.active_adapter != self.adapter:
                self._network.set_adapter(self.adapter)


class LocalModel:
    """A causal language model on this machine, with any number of adapters by name."""

    def __init__(self, voices: Mapping[str, Voice]) -> None:
        self._voices = dict(voices)
        self.names = tuple(voices)
        """Names for requests: the base, then its adapters."""
        self.lock = threading.Lock()
        """Held during computation."""

    @classmethod
    def open(
        cls,
        base: str,
        *,
        adapters: Mapping[str, str] | None = None,
        device: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Load a model.

        Args:
            base: A folder, the id of a model, or `sample:tiny-base`.
            adapters: Names of LoRA adapters, with their folders or ids.
            device: Name of a torch device; None for the GPU if there is one.
            name: Name of the base in requests; None for `base`.

        Raises:
            RequestError: A model does not exist or does not fit, or has no chat template.
            MissingExtra: torch, transformers or peft is not installed.
        """
        adapters, name = dict(adapters or {}), name or base
        if name in adapters:
            raise RequestError(f"two models are called {name!r}", hint="give one of them another name")
        network = load_base(base, device or default_device())
        template = open_template(base)
        version = fingerprint(base)
        voices = {name: Voice(name, template, network, version=version)}
        is_small = voices[name].is_small
        if not is_small:
            talk(f"note: {name} runs on trajkit's own engine: {_LIMITS}")
        if adapters and not is_small:
            for place, (called, folder) in enumerate(adapters.items()):  # without merging them
                network = with_adapter(network, folder, _ADAPTER.format(place), said=called)
            voices = {name: Voice(name, template, network, "", version=version)}
        for place, (called, folder) in enumerate(adapters.items()):
            own = _template_of_adapter(folder, base, template)
            tuned = f"{version}+{fingerprint(folder)}"
            voices[called] = (
                Voice(called, own, merged(network, folder, called), version=tuned)
                if is_small
                else Voice(called, own, network, _ADAPTER.format(place), version=tuned)
            )
        return cls(voices)

    @classmethod
    def of(cls, network: Any, template: ChatTemplate, *, name: str = "model") -> Self:
        """Wrap a model that is in memory already, such as one that is being trained.

        Its caches are valid for the current weights: call `forget` after a change of the weights.

        Args:
            network: The model of transformers; None for one at a service.
            template: Its tokenizer and chat template.
            name: Name in requests.
        """
        return cls({name: Voice(name, template, network)})

    def voice(self, name: str | None) -> Voice:
        """Return the model or adapter with a name.

        Raises:
            AskError: There is no such name.
        """
        found = self._voices.get(self.names[0] if name is None else name)
        if found is None:
            raise AskError(
                f"there is no model {name!r} here", param="model", hint=f"models: {', '.join(self.names)}"
            )
        return found

    def use_threads(self, n_threads: int | None) -> None:
        """Set how many threads of this process compute on the CPU.

        Args:
            n_threads: None for one thread with a small model, which gains nothing from more, and for torch's
                own number otherwise.
        """
        torch = need("torch", extra="local")
        if n_threads is None and self.voice(None).is_small:
            n_threads = 1
        if n_threads is not None:
            torch.set_num_threads(n_threads)

    def forget(self) -> None:
        """Clear the caches of earlier prompts."""
        for voice in self._voices.values():
            voice.prefixes.clear()

    def close(self) -> None:
        """Free the memory. The model cannot be used afterwards."""
        self.forget()
        self._voices.clear()


def open_template(name: str) -> ChatTemplate:
    """Open the tokenizer of a model, which must have a chat template.

    Raises:
        RequestError: It has none.
    """
    template = ChatTemplate(name)
    if template.has_marks is None:
        raise RequestError(
            f"{name} has no chat template", hint="the folder of a model that was tuned with one"
        )
    return template


def _template_of_adapter(folder: str, base: str, template: ChatTemplate) -> ChatTemplate:
    """Return the template of an adapter's own tokenizer, otherwise that of its base."""
    path = Path(folder)
    has_own = path.is_dir() and (path / "tokenizer_config.json").is_file()
    return open_template(folder) if has_own else template


def _stops_of(network: Any) -> frozenset[int]:
    """Return the tokens that end an answer according to the model's generation settings."""
    found = network.generation_config.eos_token_id
    if found is None:
        return frozenset()
    return frozenset([found] if isinstance(found, int) else found)
