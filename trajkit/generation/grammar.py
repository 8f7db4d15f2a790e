"""Answers that keep to a grammar, token by token: what may come next, and when it is whole."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trajkit._lazy import need
from trajkit.formats.tokenizer import ChatTemplate
from trajkit.generation.ask import AskError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_WHITESPACE = r"[ ]?|\n[ ]{0,16}"
"""What may stand between the parts of a JSON text. Without a limit a model can go on with it for ever."""
_MOST = 64
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

    def constraint(self, lark: str, param: str) -> Constraint:
        """What an answer keeps to.

        Args:
            lark: The grammar.
            param: The field of an ask that it comes from.

        Raises:
            AskError: It cannot be enforced.
            MissingExtra: llguidance is not installed.
        """
        guidance = need("llguidance", extra="local")
        found = self._known.get(lark)
        if found is None:
            found = guidance.LLMatcher(self._words(), guidance.LLMatcher.grammar_from_lark(lark), log_level=0)
            if found.is_error():
                raise AskError(
                    f"this schema cannot be enforced: {_reason(found.get_error())}",
                    param=param,
                    hint="leave out the keyword, or ask without a schema",
                )
            self._known[lark] = found
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
        self._known.move_to_end(lark)
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


def json_rule(schema: Mapping[str, Any], *, is_strict: bool = True) -> str:
    """A JSON schema as an expression of a grammar.

    Args:
        schema: It.
        is_strict: Refuse keywords that cannot be enforced, sooner than passing over them.
    """
    guidance: dict[str, Any] = {"whitespace_pattern": _WHITESPACE}
    if not is_strict:
        guidance["lenient"] = True
    return "%json " + json.dumps({**schema, "x-guidance": guidance}, ensure_ascii=False)


_PLACE = re.compile(r"^(at \d+\(\d+\): )?(failed to compile JSON schema: )?")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _reason(error: str) -> str:
    """What an error of llguidance says, without where in the grammar that we wrote."""
    lines = [_PLACE.sub("", line).strip() for line in error.splitlines() if line.strip()]
    told = next((line for line in lines if not line.endswith(":")), "unknown")
    detail = next((line for line in lines if line.startswith("error: ")), told)
    return detail.removeprefix("error: ")[:300]
