"""Count tokens by a model's tokenizer and chat template, by tiktoken, or as a marked estimate."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

from trajkit._core.lazy import need
from trajkit._core.samples import pretrained
from trajkit.errors import RequestError
from trajkit.formats.tokens.template_bounds import bound_templates

_CHARACTERS_PER_TOKEN = 4
_TIKTOKEN = "tiktoken:"
_MOST_KEPT, _LONGEST_KEPT = 4096, 10_000
"""Number of prompts that are kept with their tokens, and maximum characters of one."""
_FAULTS = (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, RecursionError, MemoryError)
"""Errors that the Python code of a chat template can raise."""
ESTIMATE = "estimate"
"""The tokenizer name for an estimate from the number of characters."""


class Unwritable(RequestError):
    """The chat template cannot write this conversation."""


class Rendered(NamedTuple):
    """A conversation in tokens."""

    n_tokens: int
    """Number of tokens."""
    spans: tuple[tuple[int, int], ...]
    """For each assistant message: start and end (exclusive) of its own tokens."""
    ends_learned: tuple[bool, ...] | None
    """For each assistant message: whether it includes a token that ends the turn, so that a model learns to
    stop. None if the tokenizer has no such token."""
    tokens: tuple[int, ...] = ()
    """The tokens; empty if they were only counted."""
    is_sure: bool = True
    """Whether the positions are certain. They are not if a template without marks writes a conversation
    differently once it continues, as templates that leave out earlier thoughts do."""


class Tokenizer(Protocol):
    """Converts texts and conversations to tokens."""

    @property
    def name(self) -> str:
        """The name that the user gave."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether its counts are the trainer's own and not an estimate."""
        ...

    @property
    def has_marks(self) -> bool | None:
        """Whether its chat template marks the assistant's tokens; None without a template."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of a single text."""
        ...

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> Rendered:
        """Convert a conversation in OpenAI's shape.

        Raises:
            RequestError: The chat template cannot write it.
        """
        ...


def load_tokenizer(name: str) -> Tokenizer:
    """Return a tokenizer by name.

    Args:
        name: A folder with a model or a tokenizer, an id on the Hugging Face Hub, `tiktoken:` with an
            encoding such as `tiktoken:o200k_base`, or `estimate` for a quarter of the characters.

    Raises:
        RequestError: It does not exist, or its vocabulary is not on this machine.
        MissingExtra: The package that reads it is not installed.
    """
    if name == ESTIMATE:
        return CharacterEstimate()
    if name.startswith(_TIKTOKEN):
        return Tiktoken(name.removeprefix(_TIKTOKEN))
    return ChatTemplate(name)


class _Counter(ABC):
    """Counts a conversation by its texts."""

    is_exact = False
    has_marks = None

    @abstractmethod
    def count(self, text: str) -> int:
        """Return the tokens of a text."""

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> Rendered:
        """Count a conversation, with OpenAI's additions to each message."""
        # OpenAI's cookbook on data preparation: 3 for each message, 1 for a name, 3 before the reply
        at = 3 + (self.count(json.dumps(list(tools), ensure_ascii=False)) if tools else 0)
        spans = []
        for message in messages:
            at += 3 + (1 + self.count(str(message["name"])) if message.get("name") else 0)
            n_tokens = sum(map(self.count, _texts(message)))
            if message.get("role") == "assistant":
                spans.append((at, at + n_tokens))
            at += n_tokens
        return Rendered(at, tuple(spans), None)


class CharacterEstimate(_Counter):
    """A token for every four characters: close for English prose, not for JSON and other languages."""

    name = ESTIMATE

    def count(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        return math.ceil(len(text) / _CHARACTERS_PER_TOKEN)


class Tiktoken(_Counter):
    """One of OpenAI's encodings. An estimate, because the additions of a service to messages are not public.

    Args:
        encoding: Such as `o200k_base`.
    """

    def __init__(self, encoding: str) -> None:
        tiktoken = need("tiktoken", extra="tokens")
        self.name = f"{_TIKTOKEN}{encoding}"
        try:
            self._encoding = tiktoken.get_encoding(encoding)
        except ValueError:
            known = ", ".join(tiktoken.list_encoding_names())
            raise RequestError(f"no encoding {encoding!r}", hint=f"encodings: {known}") from None
        except Exception as error:
            raise RequestError(
                f"the vocabulary of {encoding} is not on this machine and cannot be fetched",
                hint="put it into the folder TIKTOKEN_CACHE_DIR, or count with --tokenizer estimate",
            ) from error

    def count(self, text: str) -> int:
        """Return the tokens of a text; special tokens in it count as text."""
        return len(self._encoding.encode_ordinary(text))


def _texts(message: Mapping[str, Any]) -> list[str]:
    """Return all texts of a message."""
    content = message.get("content")
    texts = [str(thought)] if (thought := message.get("reasoning_content")) else []
    texts += [content] if isinstance(content, str) else []
    if isinstance(content, list):
        texts += [str(part.get("text") or "") for part in content if isinstance(part, Mapping)]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments")
        spelled = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        texts += [str(function.get("name") or ""), spelled]
    return texts


class ChatTemplate:
    """A model's own tokenizer with its chat template.

    Args:
        name: A folder, or an id on the Hugging Face Hub.
    """

    is_exact = True

    def __init__(self, name: str) -> None:
        transformers = need("transformers", extra="tokens")
        bound_templates()
        self.name = name
        try:
            self._tokenizer = pretrained(transformers.AutoTokenizer, name)
        except (OSError, ValueError) as error:
            first = str(error).splitlines()[0]
            hint = "a folder with tokenizer.json, an id on the Hub, tiktoken:o200k_base, or estimate"
            raise RequestError(f"no tokenizer in {name}: {first}", hint=hint) from error
        template = self._tokenizer.chat_template
        self.has_marks = None if not template else "{% generation" in template or "{%- generation" in template
        # attempts at one seed see the same prompts again and again
        self._encoded = lru_cache(_MOST_KEPT)(lambda text: tuple(self.encode(text)))
        self.stops: frozenset[int] = frozenset(_stops(self._tokenizer))
        """The tokens that end a turn."""

    @property
    def tokenizer(self) -> Any:
        """The tokenizer object of transformers."""
        return self._tokenizer

    @cached_property
    def digest(self) -> str:
        """`sha256:` and a hash of the mapping between texts and ids, without the chat template."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        parts = {"vocab": self._tokenizer.get_vocab()} if backend is None else json.loads(backend.to_str())
        parts = {name: part for name, part in parts.items() if name not in ("padding", "truncation")}
        return f"sha256:{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()}"

    def count(self, text: str) -> int:
        """Return the tokens of a text without special tokens at its beginning or end."""
        return len(self.encode(text))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without added special tokens; those in the text are recognised."""
        tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return tokens

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> Rendered:
        """Convert a conversation as the trainer does."""
        if self.has_marks is None:
            raise Unwritable(f"{self.name} has no chat template", hint="a base model takes rows of text")
        written = [_for_template(message) for message in messages]
        tokens, mask = self._write(written, tools, is_marked=bool(self.has_marks))
        n_answers = sum(message.get("role") == "assistant" for message in messages)
        runs = _runs(mask) if self.has_marks else []
        is_sure = True
        if len(runs) == n_answers:
            spans = runs
        else:
            spans, is_sure = self._by_prefix(written, tools, tokens)
        ends = None
        if self.stops:
            ends = tuple(end > start and bool(self.stops & set(tokens[start:end])) for start, end in spans)
        return Rendered(len(tokens), tuple(spans), ends, tuple(tokens), is_sure)

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None
    ) -> tuple[int, ...]:
        """Return the tokens of a prompt, to be followed by an answer.

        Raises:
            RequestError: The chat template cannot write it.
        """
        written = [_for_template(message) for message in messages]
        if not getattr(self._tokenizer, "is_fast", False):  # some other tokenizers make no text
            return tuple(self._write(written, tools, asks=True)[0])
        text: str = self._applied(written, tools, add_generation_prompt=True, tokenize=False)
        return self._encoded(text) if len(text) <= _LONGEST_KEPT else tuple(self.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer, without the token that ends the turn and anything after it."""
        end = next((place for place, token in enumerate(tokens) if token in self.stops), len(tokens))
        text: str = self._tokenizer.decode(list(tokens[:end]))
        return text

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return the text of all tokens, including special ones."""
        text: str = self._tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)
        return text

    def _by_prefix(
        self, messages: Sequence[Mapping[str, Any]], tools: Any, tokens: list[int]
    ) -> tuple[list[tuple[int, int]], bool]:
        """Find the tokens of answers as the difference to the prompts before them."""
        spans, is_sure = [], True
        for position, message in enumerate(messages):
            if message.get("role") == "assistant":
                before, _ = self._write(messages[:position], tools, asks=True)
                after, _ = self._write(messages[: position + 1], tools)
                spans.append((min(len(before), len(after)), len(after)))
                is_sure &= tokens[: len(before)] == before and tokens[: len(after)] == after
        return spans, is_sure

    def _write(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Any,
        *,
        asks: bool = False,
        is_marked: bool = False,
    ) -> tuple[list[int], list[int]]:
        made = self._applied(
            messages,
            tools,
            add_generation_prompt=asks,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=is_marked,
        )
        return list(made["input_ids"]), list(made.get("assistant_masks", ()))

    def _applied(self, messages: Sequence[Mapping[str, Any]], tools: Any, **options: Any) -> Any:
        jinja = need("jinja2", extra="tokens")
        try:
            return self._tokenizer.apply_chat_template(
                list(messages), tools=list(tools) if tools else None, **options
            )
        except TimeoutError as error:
            raise RequestError(f"the chat template of {self.name} cannot write it: {error}") from error
        except (jinja.TemplateError, *_FAULTS) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise Unwritable(f"the chat template of {self.name} cannot write it: {reason}") from error


def _stops(tokenizer: Any) -> set[int]:
    """Return the tokens that end a turn: the end of text, and those that templates write after an answer."""
    names = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|eot|>", "</s>")
    found = {tokenizer.convert_tokens_to_ids(name) for name in names}
    return {
        token for token in (*found, tokenizer.eos_token_id) if token not in (None, tokenizer.unk_token_id)
    }


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with the arguments of calls as objects: templates would write a text in quotes."""
    written = {key: value for key, value in message.items() if key != "weight" and value is not None}
    if isinstance(written.get("content"), list):
        written["content"] = "".join(str(part.get("text") or "") for part in written["content"])
    written.setdefault("content", "")
    if calls := written.get("tool_calls"):
        written["tool_calls"] = [_with_object(call) for call in calls]
    return written


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    if isinstance(function.get("arguments"), str):
        with contextlib.suppress(ValueError):  # arguments that are not JSON stay a text
            function["arguments"] = json.loads(function["arguments"])
    return {**call, "function": function}


def _runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs of ones in a mask."""
    spans, start = [], None
    for position, is_one in enumerate([*mask, 0]):
        if is_one and start is None:
            start = position
        elif not is_one and start is not None:
            spans.append((start, position))
            start = None
    return spans
