"""Constrain answers to a grammar, token by token."""

from __future__ import annotations

import json
import math
import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from trajkit._core.lazy import need
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import AskError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_WHITESPACE = r"[ ]?|\n[ ]{0,16}"
"""Whitespace between the parts of a JSON text; without a limit a model can generate it endlessly."""
_MOST = 64
_LARGEST_GRAMMAR = 40_000
"""Maximum symbols per grammar. llguidance itself limits its automata and the work per token."""
_LARGEST_MULTIPLE = 10_000
"""Largest common multiple of a schema's `multipleOf`: llguidance makes as many states, without a limit."""
_UNFINISHED = "\ufffd"


class Constraint:
    """The constraint of one answer.

    Args:
        matcher: llguidance's matcher in its initial state.
    """

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def allow(self, bits: NDArray[numpy.int32]) -> bytes:
        """Write the mask of allowed next tokens, and return it compressed, as in `Sampled.allowed`.

        Args:
            bits: int32 [vocabulary / 32]; gets one bit per token.
        """
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        return zlib.compress(bits.tobytes(), level=1)

    def take(self, token: int) -> None:
        """Advance by a sampled token."""
        self._matcher.consume_token(token)

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete, so that no token can follow."""
        return bool(self._matcher.is_stopped())

    @property
    def fault(self) -> str | None:
        """Why the constraint has failed, such as a limit on the work per token; None when it works."""
        return _reason(self._matcher.get_error()) if self._matcher.is_error() else None


class Grammars:
    """The compiled grammars of one tokenizer.

    Args:
        template: The tokenizer.
        n_vocabulary: Number of tokens that the model chooses from.
        stops: Tokens that end an answer.
    """

    def __init__(self, template: ChatTemplate, n_vocabulary: int, stops: Sequence[int]) -> None:
        self._template, self.n_vocabulary, self._stops = template, n_vocabulary, sorted(stops)
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._tokenizer: Any = None
        self._lock = threading.Lock()

    def constraint(self, lark: str, param: str) -> Constraint:
        """Return the constraint of a grammar.

        Args:
            lark: The grammar.
            param: The field of an ask that it comes from.

        Raises:
            AskError: The grammar cannot be enforced.
            MissingExtra: llguidance is not installed.
        """
        with self._lock:
            found = self._known.get(lark)
        if found is None:
            guidance = need("llguidance", extra="local")
            grammar = guidance.LLMatcher.grammar_from_lark(lark)
            limits = guidance.LLParserLimits(max_grammar_size=_LARGEST_GRAMMAR)
            found = guidance.LLMatcher(self._words(), grammar, log_level=0, limits=limits)
            if found.is_error():
                raise unenforceable(_reason(found.get_error()), param)
        with self._lock:
            self._known[lark] = found
            self._known.move_to_end(lark)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
            return Constraint(found.deep_copy())

    def literal(self, text: str) -> str:
        """Return a text as a grammar literal; special tokens, which no text matches, by their ids."""
        words, parts, plain = self._words(), [], ""
        for token in self._template.encode(text):
            if words.is_special_token(token):
                parts += [_quoted(plain), f"<[{token}]>"]
                plain = ""
            else:
                plain = plain + self._template.decode([token])
        whole = [*parts, _quoted(plain)] if parts else [_quoted(text)]
        return " ".join(part for part in whole if part)

    def spelled(self, token: int) -> bytes:
        """Return the bytes of a token, which may be a part of a character."""
        text = self._template.tokenizer.decode([token])
        if _UNFINISHED not in text:
            return str(text).encode()
        return bytes(self._words().decode_bytes([token]))

    def _words(self) -> Any:
        """Return the vocabulary for llguidance; building it takes up to a second."""
        with self._lock:
            if self._tokenizer is None:
                from_tokenizer = need("llguidance.hf", extra="local").from_tokenizer
                try:
                    self._tokenizer = from_tokenizer(
                        self._template.tokenizer, n_vocab=self.n_vocabulary, eos_token=self._stops
                    )
                except ValueError as error:
                    raise AskError(
                        f"the tokenizer of {self._template.name} cannot enforce a schema: {error}",
                        hint="use a model with a fast tokenizer (tokenizer.json)",
                    ) from error
            return self._tokenizer


def unenforceable(reason: str, param: str) -> AskError:
    """Return the error of a schema that cannot be enforced."""
    hint = "leave out the keyword or the whole schema"
    return AskError(f"this schema cannot be enforced: {reason}", param=param, hint=hint)


def json_rule(schema: Mapping[str, Any], param: str, *, is_strict: bool = True) -> str:
    """Return a JSON schema as a grammar expression.

    Args:
        schema: The schema.
        param: The field of an ask that it comes from.
        is_strict: Refuse keywords that cannot be enforced, instead of ignoring them.

    Raises:
        AskError: The schema is nested too deep, contains half of a surrogate pair, or has a `multipleOf` that
            is too large.
    """
    guidance: dict[str, Any] = {"whitespace_pattern": _WHITESPACE}
    if not is_strict:
        guidance["lenient"] = True
    try:
        written = json.dumps({**schema, "x-guidance": guidance}, ensure_ascii=False)
        written.encode()
        _check_bounds(schema, param)
    except UnicodeEncodeError as error:
        raise unenforceable("it contains half of a surrogate pair", param) from error
    except (RecursionError, TypeError, ValueError) as error:
        raise unenforceable("it is nested too deep, or is not JSON", param) from error
    return f"%json {written}"


def _check_bounds(schema: Mapping[str, Any], param: str) -> None:
    """Refuse a schema whose `multipleOf` are too large to enforce."""
    multiples = [each for each in _multiples(schema) if each]
    unit = math.lcm(*(each.denominator for each in multiples))
    if math.lcm(*(int(each * unit) for each in multiples)) > _LARGEST_MULTIPLE:
        raise unenforceable(f"its multipleOf have a common multiple above {_LARGEST_MULTIPLE:,}", param)


def _multiples(part: object) -> Iterator[Fraction]:
    """Yield every `multipleOf` in a schema, 0.01 as 1/100."""
    if isinstance(part, Mapping):
        value = part.get("multipleOf")
        if isinstance(value, int | float) and math.isfinite(value):
            yield abs(Fraction(str(value + 0)))  # + 0: True is a number in Python
    if isinstance(part, Mapping | list | tuple):
        for inner in part.values() if isinstance(part, Mapping) else part:
            yield from _multiples(inner)


_ELSEWHERE = re.compile(r"Resource '(.*?)' is not present in a registry")
_WORDS = {"recursion limit": "it is nested too deep", "NoExtensionBias": "no JSON text keeps to it"}
_PLACE = re.compile(r"^(at \d+\(\d+\): )?(failed to compile JSON schema: )?")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _reason(error: str) -> str:
    """Return the reason in an error of llguidance, without positions in the grammar."""
    if (elsewhere := _ELSEWHERE.search(error)) is not None:
        name = elsewhere[1].removeprefix("json-schema:///")
        return f"$ref to another document is not supported, and none is fetched: {name[:200]!r}"
    for word, reason in _WORDS.items():
        if word in error:
            return reason
    lines = [_PLACE.sub("", line).strip() for line in error.splitlines() if line.strip()]
    first = next((line for line in lines if not line.endswith(":")), "unknown")
    detail = next((line for line in lines if line.startswith("error: ")), first)
    return detail.removeprefix("error: ")[:300]
