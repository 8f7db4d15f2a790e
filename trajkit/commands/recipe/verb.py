"""What a command is to a recipe: a name, and options with theirs. The command line says which there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from trajkit.commands.recipe.recipe import Value


class Option(NamedTuple):
    """An option or an argument of a command."""

    name: str
    """In a recipe: that of the flag, `-` as `_`."""
    flag: str | None
    """As it is typed, such as `--num-train-epochs`; None for an argument, which is typed without."""
    negative: str | None
    """What says the contrary of a flag, such as `--no-lora`; None where nothing does."""
    is_flag: bool
    """Whether it takes no value."""
    is_repeated: bool
    """Whether it may be given several times."""
    text: str
    """What its help says."""
    choices: tuple[str, ...] | None = None
    """The values that it takes; None for any."""


class Verb(NamedTuple):
    """A command."""

    name: str
    """As it is typed, such as `sft local`."""
    text: str
    """What its help says, in a sentence."""
    options: tuple[Option, ...]
    """Arguments in their order, then options."""

    def option(self, name: str) -> Option | None:
        """An option by its name in a recipe."""
        return next((option for option in self.options if option.name == name), None)

    @property
    def is_job(self) -> bool:
        """Whether it starts a job, which has a name and a folder of its own."""
        return all(self.option(name) is not None for name in ("name", "runs", "detach"))


class Unfit(Exception):
    """Arguments that a command refuses before it does anything.

    Args:
        message: Why.
        option: Name of the option that is meant; None for all of them.
    """

    def __init__(self, message: str, option: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.option = option


class Verbs(Protocol):
    """The commands that there are."""

    def names(self) -> Sequence[str]:
        """All of them, in the order of their help."""
        ...

    def find(self, name: str) -> Verb | None:
        """A command by its name."""
        ...

    def check(self, verb: Verb, arguments: Sequence[str]) -> None:
        """Read the arguments and do nothing.

        Raises:
            Unfit: The command refuses them.
        """
        ...

    def call(self, verb: Verb, arguments: Sequence[str]) -> int:
        """Run the command in this process, and give its exit code.

        Raises:
            TrajkitError: It failed.
            KeyboardInterrupt: It was stopped.
        """
        ...


def typed(verb: Verb, options: dict[str, Value]) -> list[str]:
    """The options as they are typed after the command.

    Raises:
        Unfit: A value is of a shape that an option cannot take.
    """
    given = [
        (option, options[option.name]) for option in verb.options if options.get(option.name) is not None
    ]
    arguments = [text for option, value in given if option.flag is None for text in _texts(option, value)]
    flags = [text for option, value in given if option.flag is not None for text in _flags(option, value)]
    is_odd = any(text.startswith("-") for text in arguments)
    return [*flags, "--", *arguments] if is_odd else [*arguments, *flags]


def _flags(option: Option, value: Value) -> Iterator[str]:
    assert option.flag is not None
    if option.is_flag:
        if not isinstance(value, bool):
            raise Unfit(f"{option.name} is true or false, not {value!r}", option.name)
        if value or option.negative is not None:
            yield option.flag if value else option.negative or ""
        return
    for text in _texts(option, value):
        # `--option=-1`: a value that begins with a dash would be taken for an option
        yield from (f"{option.flag}={text}",) if text.startswith("-") else (option.flag, text)


def _texts(option: Option, value: Value) -> list[str]:
    if isinstance(value, dict):
        if not option.is_repeated:
            raise Unfit(f"{option.name} takes one value, not names with values", option.name)
        return [f"{name}={_text(each)}" for name, each in value.items()]
    if isinstance(value, list):
        if not option.is_repeated:
            raise Unfit(f"{option.name} takes one value, not a list", option.name)
        return [_text(each) for each in value]
    return [_text(value)]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
