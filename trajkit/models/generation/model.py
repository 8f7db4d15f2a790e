"""A causal language model on this machine, with any number of adapters by name."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from trajkit._core.lazy import need
from trajkit.errors import RequestError
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.models.generation.ask import AskError
from trajkit.models.generation.call_style import call_style
from trajkit.models.generation.conversations import Conversations
from trajkit.models.generation.grammar import Grammars
from trajkit.models.generation.located import fingerprint
from trajkit.models.generation.prefix import Prefixes
from trajkit.models.generation.weights import SMALL, default_device, load_base, merged, with_adapter

_ADAPTER = "trajkit_{}"


class Voice:
    """One of the models that share a base: how it is asked, and what its prompts have in common.

    Args:
        name: What it is called.
        template: Its tokenizer and chat template.
        network: What answers; None where a service does, for which prompts are written and answers read here.
        adapter: The adapter to switch on in it; None where it has none, "" to switch all off.
        version: Fingerprint of its weights; None when unknown.
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
        """Whether it computes here, where a grammar can choose what it may say."""
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
        """The most tokens of prompt and answer; None when the model has no limit."""
        self.stops = template.stops | _stops_of(inner)
        """The tokens that end an answer."""
        n_vocabulary: int = config.vocab_size
        self.grammars = Grammars(template, n_vocabulary, sorted(self.stops))

    @property
    def is_small(self) -> bool:
        """Whether it is so small that a copy of it costs nothing."""
        return int(sum(each.numel() for each in self._network.parameters())) <= SMALL

    @property
    def device(self) -> Any:
        """Where it computes."""
        return self._network.device

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token, which may be a part of a character."""
        return self.grammars.spelled(token)

    def __call__(self, tokens: Any, seen: Any, positions: Any, past: Any) -> tuple[Any, Any]:
        """What comes after some tokens.

        Args:
            tokens: int64 [rows, new].
            seen: int64 [rows, all], 1 where there is a token and 0 where a row is filled up.
            positions: int64 [rows, new], the place of each token in its row.
            past: Keys and values of what came before; None at the beginning.

        Returns:
            Logits of the next token, float32 [rows, vocabulary], and the keys and values of all.
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
        """Switch on the adapter that answers, and no other."""
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
        """What can be asked: the base, then its adapters."""
        self.lock = threading.Lock()
        """Held while it computes."""

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
            adapters: Names and folders (or ids) of LoRA adapters to it.
            device: As torch names it; None for the GPU where there is one.
            name: What the base is called; None for `base`.

        Raises:
            RequestError: A model is not there or does not fit, or has no chat template.
            MissingExtra: torch, transformers or peft is not installed.
        """
        adapters, name = dict(adapters or {}), name or base
        if name in adapters:
            raise RequestError(f"two models are called {name!r}", hint="give one another name")
        network = load_base(base, device or default_device())
        template = _template(base)
        version = fingerprint(base)
        voices = {name: Voice(name, template, network, version=version)}
        is_small = voices[name].is_small
        if adapters and not is_small:
            network = _all_adapters(network, adapters)
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
    def of(
        cls, network: Any, template: ChatTemplate, *, name: str = "model", version: str | None = None
    ) -> Self:
        """A model that is in memory already, such as one that is being trained.

        What is kept of prompts is that of its present weights: call `forget` when they have changed.

        Args:
            network: The model of transformers; None for one at a service.
            template: Its tokenizer and chat template.
            name: What it is called.
            version: What its weights are called in `Said.sampled`; None when unknown.
        """
        return cls({name: Voice(name, template, network, version=version)})

    def voice(self, name: str | None) -> Voice:
        """The one that is asked.

        Raises:
            AskError: There is none of this name.
        """
        found = self._voices.get(self.names[0] if name is None else name)
        if found is None:
            raise AskError(
                f"there is no model {name!r} here", param="model", hint=f"models: {', '.join(self.names)}"
            )
        return found

    def use_threads(self, n_threads: int | None) -> None:
        """Say how many threads of this process compute on the CPU.

        Args:
            n_threads: None for one where the model is small, whose work is not worth sharing, and torch's own
                number where it is not.
        """
        torch = need("torch", extra="local")
        if n_threads is None and self.voice(None).is_small:
            n_threads = 1
        if n_threads is not None:
            torch.set_num_threads(n_threads)

    def forget(self, *, version: str | None = None) -> None:
        """Drop what is kept of earlier prompts.

        Args:
            version: What the weights are called from now on; None leaves it as it is.
        """
        for voice in self._voices.values():
            voice.prefixes.clear()
            voice.version = version or voice.version

    def close(self) -> None:
        """Let the memory go. The model cannot be asked any more."""
        self.forget()
        self._voices.clear()


def _all_adapters(network: Any, adapters: Mapping[str, str]) -> Any:
    """A model with all of its adapters, none of them merged."""
    for place, (called, folder) in enumerate(adapters.items()):
        network = with_adapter(network, folder, _ADAPTER.format(place), said=called)
    return network


def _template(name: str) -> ChatTemplate:
    template = ChatTemplate(name)
    if template.has_marks is None:
        raise RequestError(
            f"{name} has no chat template", hint="the folder of a model that was tuned with one"
        )
    return template


def _template_of_adapter(folder: str, base: str, template: ChatTemplate) -> ChatTemplate:
    """The tokenizer that was saved with an adapter, else that of its base."""
    path = Path(folder)
    has_own = path.is_dir() and (path / "tokenizer_config.json").is_file()
    return _template(folder) if has_own else template


def _stops_of(network: Any) -> frozenset[int]:
    """The tokens by which the model's own settings end an answer."""
    found = network.generation_config.eos_token_id
    if found is None:
        return frozenset()
    return frozenset([found] if isinstance(found, int) else found)
