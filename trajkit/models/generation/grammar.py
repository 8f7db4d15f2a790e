"""Answers that keep to a grammar, token by token: what may come next, and when it is whole."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from trajkit._core.lazy import need
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.models.generation.ask import AskError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_WHITESPACE = r"[ ]?|\n[ ]{0,16}"
"""What may stand between the parts of a JSON text. Without a limit a model can go on with it for ever."""
_MOST = 64
_LARGEST_GRAMMAR = 40_000
"""Symbols of a grammar. llguidance bounds all else by itself: automata, and the work of each token."""
_LARGEST_MULTIPLE = 10_000
"""Of `multipleOf`, all of a schema's together: llguidance makes as many states and has no bound for them."""
_UNFINISHED = "\ufffd"


class Constraint:
    """What one answer keeps to.

    Args:
        matcher: llguidance's, at the beginning.
    """

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def allow(self, bits: NDArray[numpy.int32]) -> None:
        """Write which tokens may come next.

        Args:
            bits: int32 [vocabulary / 32], filled with a bit for each token.
        """
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)

    def take(self, token: int) -> None:
        """Go on with the token that was said."""
        self._matcher.consume_token(token)

    @property
    def is_whole(self) -> bool:
        """Whether nothing can follow."""
        return bool(self._matcher.is_stopped())

    @property
    def fault(self) -> str | None:
        """Why it can be kept to no longer, such as a bound on the work of a token; None when it can."""
        return _reason(self._matcher.get_error()) if self._matcher.is_error() else None


class Grammars:
    """The grammars of one tokenizer, each read once.

    Args:
        template: Whose tokens they are.
        n_vocabulary: How many tokens the model chooses from.
        stops: The tokens that end an answer.
    """

    def __init__(self, template: ChatTemplate, n_vocabulary: int, stops: Sequence[int]) -> None:
        self._template, self.n_vocabulary, self._stops = template, n_vocabulary, sorted(stops)
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._tokenizer: Any = None
        self._lock = threading.Lock()

    def constraint(self, lark: str, param: str) -> Constraint:
        """What an answer keeps to.

        Args:
            lark: The grammar.
            param: The field of an ask that it comes from.

        Raises:
            AskError: It cannot be enforced.
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
        """A text as the grammar writes it: special tokens, which no text matches, by their numbers."""
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
        """The bytes of a token, which may be a part of a character."""
        text = self._template.tokenizer.decode([token])
        if _UNFINISHED not in text:
            return str(text).encode()
        return bytes(self._words().decode_bytes([token]))

    def _words(self) -> Any:
        """The vocabulary as llguidance reads it, which takes up to a second."""
        with self._lock:
            if self._tokenizer is None:
                from_tokenizer = need("llguidance.hf", extra="local").from_tokenizer
                try:
                    self._tokenizer = from_tokenizer(
                        self._template.tokenizer, n_vocab=self.n_vocabulary, eos_token=self._stops
                    )
                except ValueError as error:
                    raise AskError(
                        f"the tokenizer of {self._template.name} cannot keep to a schema: {error}",
                        hint="a model with a fast tokenizer (tokenizer.json)",
                    ) from error
            return self._tokenizer


def unenforceable(reason: str, param: str) -> AskError:
    """The error of a schema that an answer cannot be held to."""
    hint = "leave out the keyword, or ask without a schema"
    return AskError(f"this schema cannot be enforced: {reason}", param=param, hint=hint)


def json_rule(schema: Mapping[str, Any], param: str, *, is_strict: bool = True) -> str:
    """A JSON schema as an expression of a grammar.

    Args:
        schema: It.
        param: The field of an ask that it comes from.
        is_strict: Refuse keywords that cannot be enforced, sooner than passing over them.

    Raises:
        AskError: It is nested too deep, holds half of a surrogate pair, or has a `multipleOf` that is too
            large.
    """
    guidance: dict[str, Any] = {"whitespace_pattern": _WHITESPACE}
    if not is_strict:
        guidance["lenient"] = True
    try:
        written = json.dumps({**schema, "x-guidance": guidance}, ensure_ascii=False)
        written.encode()
        _check_bounds(schema, param)
    except UnicodeEncodeError as error:
        raise unenforceable("it holds half of a surrogate pair", param) from error
    except (RecursionError, TypeError, ValueError) as error:
        raise unenforceable("it is nested too deep, or no JSON", param) from error
    return f"%json {written}"


def _check_bounds(schema: Mapping[str, Any], param: str) -> None:
    """Raise where the multiples that a schema asks for are too large to count."""
    multiples = [each for each in _multiples(schema) if each]
    unit = math.lcm(*(each.denominator for each in multiples))
    if math.lcm(*(int(each * unit) for each in multiples)) > _LARGEST_MULTIPLE:
        raise unenforceable(f"its multipleOf have a common multiple above {_LARGEST_MULTIPLE:,}", param)


def _multiples(part: object) -> Iterator[Fraction]:
    """Every `multipleOf` in a schema, 0.01 as 1/100."""
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
    """What an error of llguidance says, without where in the grammar that we wrote."""
    if (elsewhere := _ELSEWHERE.search(error)) is not None:
        name = elsewhere[1].removeprefix("json-schema:///")
        return f"$ref to another document is not supported, and none is fetched: {name[:200]!r}"
    for word, said in _WORDS.items():
        if word in error:
            return said
    lines = [_PLACE.sub("", line).strip() for line in error.splitlines() if line.strip()]
    told = next((line for line in lines if not line.endswith(":")), "unknown")
    detail = next((line for line in lines if line.startswith("error: ")), told)
    return detail.removeprefix("error: ")[:300]
