"""One answer during its generation."""

from __future__ import annotations

import random
from collections.abc import Sequence

from trajkit._core.lazy import need
from trajkit.errors import ServiceError, TrajkitError
from trajkit.formats.tokens.sampled import Sampled
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.ask import Ask, AskError, Said, SaidToken, ToolCall
from trajkit.models.generation.model import LocalModel, Voice
from trajkit.models.generation.tools.call_style import with_tools
from trajkit.models.generation.tools.calls import Tools, grammar_of, read_calls, tools_of
from trajkit.models.generation.tools.grammar import Constraint, unenforceable


class Row:
    """One answer during its generation.

    Args:
        voice: The model.
        ask: The request.
        is_heard: Whether the caller reads the text while it grows.

    Raises:
        AskError: The model cannot answer this request.
    """

    def __init__(self, voice: Voice, ask: Ask, *, is_heard: bool = False) -> None:
        _check(ask)
        self.voice, self.ask = voice, ask
        self._tools = tools_of(ask)
        self.prompt = _prompt(voice, ask, self._tools)
        if ask.conversation is not None:
            self.prompt = voice.conversations.extended(ask.conversation, self.prompt)
        if max(self.prompt, default=0) >= voice.grammars.n_vocabulary:
            raise AskError("the prompt has a token outside the model's vocabulary", param="messages")
        self.most = _most(voice, ask, len(self.prompt))
        """Maximum tokens of the answer."""
        self.said: list[int] = []
        self._sampled: list[float] = []
        self.allowed: list[bytes] = []
        """Tokens that the grammar allowed at each position, as in `Sampled`."""
        self.logprobs: list[SaidToken] = []
        self.is_over = False
        """Whether the answer is finished."""
        self.is_cut = False
        """Whether the answer ended at its token limit."""
        self._error: TrajkitError | None = None
        self._chance = random.Random(ask.seed)
        self.constraint = _constraint(voice, ask, self._tools) if voice.is_here else None
        """Constraint of the answer; None when it may be any text."""
        self._ends = (*ask.stop, voice.call_style.mark) if self._tools else tuple(ask.stop)
        """Texts that are not part of the streamed text."""
        self._stream = TextStream(voice.template) if ask.stop or is_heard else None
        self._text = ""

    def uniform(self) -> float:
        """Return the next number of the row's own random stream, in [0, 1)."""
        return self._chance.random()

    def add(self, token: int, logprob: float, told: SaidToken | None = None) -> None:
        """Add a token to the answer.

        Args:
            token: Token id.
            logprob: Natural-log probability with which it was drawn.
            told: Its log-probabilities under the model, where they were requested.
        """
        self.said.append(token)
        self._sampled.append(logprob)
        if token in self.voice.stops:
            self.is_over = True
            return
        if told is not None:
            self.logprobs.append(told)
        if self._stream is not None:
            self._text += self._stream.add(token)
            if first_of(self._text, self.ask.stop) is not None:
                self.is_over = True
                return
        if self.constraint is not None:
            self.constraint.take(token)
            if self.constraint.is_whole:
                self.is_over = True
                return
        if len(self.said) >= self.most:
            self.is_over = self.is_cut = True

    def end(self, error: TrajkitError | None = None) -> None:
        """Stop the generation.

        Args:
            error: Why there is no answer; None if no caller waits for one.
        """
        self.is_over, self._error = True, error

    @property
    def sure_text(self) -> str:
        """The text so far that later tokens cannot change, for streaming."""
        if self._tools and not self.voice.call_style.mark:
            return ""  # without a begin mark, a call begins like any text
        end = first_of(self._text, self._ends)
        return self._text[: sure_length(self._text, self._ends) if end is None else end]

    def answer(self) -> Said:
        """Return the finished answer.

        Raises:
            AskError: The constraint failed.
            ServiceError: The generation failed.
        """
        if self._error is not None:
            raise self._error
        if self.constraint is not None and (fault := self.constraint.fault) is not None:
            raise unenforceable(fault, "tools" if self._tools else "json_schema")
        text = self.voice.template.decode([each for each in self.said if each not in self.voice.stops])
        if (end := first_of(text, self.ask.stop)) is not None:
            text = text[:end]
        calls: tuple[ToolCall, ...] = ()
        if self._tools:
            text, calls = read_calls(text, self.voice.call_style)
        tokens = tuple(self.said)
        if self.ask.conversation is not None:
            self.voice.conversations.keep(self.ask.conversation, self.prompt, tokens)
        return Said(
            text=text,
            tool_calls=calls,
            tokens=tokens,
            logprobs=None if self.ask.n_logprobs is None else tuple(self.logprobs),
            n_input_tokens=len(self.prompt),
            n_output_tokens=len(self.said),
            finish_reason="length" if self.is_cut else "tool_calls" if calls else "stop",
            sampled=Sampled(
                self.prompt,
                tokens,
                tuple(self._sampled),
                self.voice.version,
                self.voice.template.digest,
                self.constraint is not None,
                None if self.constraint is None else tuple(self.allowed),
            ),
        )


def allowed_tokens(voice: Voice, ask: Ask, said: Sequence[int]) -> tuple[bytes, ...] | None:
    """Return the tokens that the grammar of a request allowed at each place of an answer, as in `Sampled`.

    Args:
        voice: The model, or another one with its tokenizer, vocabulary and stop tokens.
        ask: The request; only its schema and its tools count.
        said: Every token of the answer.

    Returns:
        None without a grammar, or if the grammar does not allow the answer, which then had another one.
    """
    constraint = _constraint(voice, ask, tools_of(ask))
    if constraint is None:
        return None
    bits = need("numpy", extra="local").zeros((voice.grammars.n_vocabulary + 31) // 32, dtype="int32")
    allowed: list[bytes] = []
    for token in said:
        allowed.append(constraint.allow(bits))
        if not bits[token // 32] >> token % 32 & 1:
            return None
        if token not in voice.stops:
            constraint.take(token)
    return tuple(allowed)


def _constraint(voice: Voice, ask: Ask, tools: Tools | None) -> Constraint | None:
    lark = grammar_of(ask, tools, voice.call_style, voice.grammars)
    return None if lark is None else voice.grammars.constraint(lark, "tools" if tools else "json_schema")


def failed(error: BaseException) -> TrajkitError:
    """Convert a failure of one row to its error. Others, such as Ctrl-C, are raised again."""
    if isinstance(error, TrajkitError):
        return error
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # Rust's panic
        raise error
    lost = ServiceError(f"the model failed: {type(error).__name__}: {error}")
    lost.__cause__ = error
    return lost


def rows(model: LocalModel, asks: Sequence[Ask]) -> list[Row]:
    """Build the rows of some requests.

    Raises:
        AskError: A request cannot be answered.
    """
    return [Row(model.voice(ask.model), ask) for ask in asks]


def _check(ask: Ask) -> None:
    if not ask.messages:
        raise AskError("there is no message to answer", param="messages")
    if ask.max_new_tokens < 1:
        raise AskError(f"max_new_tokens is {ask.max_new_tokens}; at least 1", param="max_new_tokens")
    if not ask.temperature >= 0:
        raise AskError(f"a temperature of {ask.temperature:g} is below 0", param="temperature")
    if not 0 < ask.top_p <= 1:
        raise AskError(f"a top_p of {ask.top_p:g} is not in (0, 1]", param="top_p")


def _prompt(voice: Voice, ask: Ask, tools: Tools | None) -> tuple[int, ...]:
    """Return the prompt as token ids, with the tools that the model may call."""
    if tools is None or voice.call_style.takes_tools:
        return voice.template.prompt(ask.messages, tools.listed if tools else None)
    return voice.template.prompt(with_tools(ask.messages, tools.listed))


def _most(voice: Voice, ask: Ask, n_prompt: int) -> int:
    """Return the maximum number of tokens of the answer."""
    if voice.room is None:
        return ask.max_new_tokens
    if n_prompt >= voice.room:
        raise AskError(
            f"the prompt has {n_prompt:,} tokens; {voice.name} takes {voice.room:,} with the answer",
            param="messages",
            hint="a shorter history",
            code="context_length_exceeded",
        )
    return min(ask.max_new_tokens, voice.room - n_prompt)


_UNFINISHED = "\ufffd"


class TextStream:
    """Decodes tokens one by one.

    A token can be a part of a character, and its text can depend on the token before, so a few tokens are
    decoded again with each new one.

    Args:
        template: The tokenizer.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._tokens: list[int] = []
        self._before = self._read = 0
        """Start of the tokens that are decoded again, and start of the new tokens."""

    def add(self, token: int) -> str:
        """Return the text that a token adds; empty while a character is incomplete."""
        self._tokens.append(token)
        before = self._template.decode(self._tokens[self._before : self._read])
        after = self._template.decode(self._tokens[self._before :])
        if len(after) <= len(before) or after.endswith(_UNFINISHED):
            return ""
        self._before, self._read = self._read, len(self._tokens)
        return after[len(before) :]


def first_of(text: str, ends: Sequence[str]) -> int | None:
    """Return the position of the first of some texts; None when none occurs."""
    places = [place for end in ends if end and (place := text.find(end)) >= 0]
    return min(places, default=None)


def sure_length(text: str, ends: Sequence[str]) -> int:
    """Return the length of the text that cannot be the beginning of one of some end texts."""
    for length in range(max(map(len, ends), default=0) - 1, 0, -1):
        if any(end.startswith(text[-length:]) for end in ends if len(end) > length) and len(text) >= length:
            return len(text) - length
    return len(text)
