"""Read the templates of a gateway's configuration from its snapshot in the database."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from trajkit.errors import ConfigError
from trajkit.sources.tensorzero.export.texts.json_mode import is_prefixed

ROLES = ("system", "user", "assistant")
"""Roles with a template of the same name."""

PATH, DATA = "__tensorzero_remapped_path", "__data"
"""The keys of a file in a snapshot: its path and its content."""


class Template(NamedTuple):
    """One template of a variant."""

    key: str
    """Its name among the gateway's templates; the ending determines how values are escaped."""
    text: str
    """Its text."""
    takes_text: bool
    """Declared in the old way (`user_template`, `input_wrappers`): plain text of its role goes through it."""
    is_wrapper: bool
    """Declared in the old way and without a schema: it takes plain text and nothing else."""


class Variant(NamedTuple):
    """The parts of a variant that determine its prompts."""

    templates: Mapping[str, Template]
    """By the name that an input block uses; `system`, `user` and `assistant` are those of the roles."""
    is_prefixed: bool
    """Whether the gateway puts the line of JSON mode before prompts that do not mention JSON."""


class Configuration:
    """The parts of a gateway's configuration that determine prompts.

    Args:
        name: Its name in errors.
        document: The parsed configuration; files are names, or tables as in a snapshot.
        read: Returns the text of a file that it names; None when there is none.
        load: Returns the text of an included template; None when there is none.
    """

    def __init__(
        self,
        name: str,
        document: Mapping[str, Any],
        *,
        read: Callable[[str], str | None],
        load: Callable[[str], str | None],
    ) -> None:
        self._name = name
        self._document = document
        self._read = read
        self._load = load
        self._texts: dict[str, str] | None = None

    def variants(self, function: str) -> tuple[str, ...]:
        """Return the variants of a function; empty when it is not declared."""
        return tuple(table_in(table_in(self.function(function), "variants")))

    def variant(self, function: str, name: str) -> Variant:
        """Return a variant of a function.

        Raises:
            ConfigError: It has no prompts of its own, or a file is missing.
        """
        declared = self.function(function)
        variant = table_in(table_in(declared, "variants"), name)
        kind = variant.get("type", "chat_completion")
        if kind != "chat_completion":
            raise ConfigError(
                f"variant {name!r} of function {function!r} is of type {kind}, without templates of its own",
                hint="name one of type chat_completion",
            )
        where = f"{self._name}: functions.{function}.variants.{name}"
        is_json = declared.get("type") == "json"
        return Variant(
            templates=dict(self._templates(declared, variant, where)),
            is_prefixed=is_json and is_prefixed(self._provider(variant), json_mode=variant.get("json_mode")),
        )

    def load(self, key: str) -> str | None:
        """Return the text of an included template by its key; None when there is none."""
        if self._texts is None:
            self._texts = {template.key: template.text for _, template in self._all_templates()}
        found = self._texts.get(key)
        return self._load(key) if found is None else found

    def function(self, name: str) -> Mapping[str, Any]:
        """Return the declaration of a function, with the texts of its files; empty when there is none."""
        return table_in(table_in(self._document, "functions"), name)

    def tool(self, name: str) -> Mapping[str, Any]:
        """Return the declaration of a tool; empty when there is none."""
        return table_in(table_in(self._document, "tools"), name)

    def _all_templates(self) -> Iterator[tuple[str, Template]]:
        for function, declared in table_in(self._document, "functions").items():
            for name, variant in table_in(declared, "variants").items():
                yield from self._templates(declared, variant, f"{self._name}: {function}.{name}")

    def _templates(
        self, function: Mapping[str, Any], variant: Mapping[str, Any], where: str
    ) -> Iterator[tuple[str, Template]]:
        """The templates of a variant, each with the name that blocks call it by."""
        wrappers = table_in(variant, "input_wrappers")
        for role in ROLES:
            has_schema = f"{role}_schema" in function or role in table_in(function, "schemas")
            for file in (variant.get(f"{role}_template"), wrappers.get(role)):
                if file is not None:
                    yield role, self._template(file, where, takes_text=True, is_wrapper=not has_schema)
        for name, declared in table_in(variant, "templates").items():
            file = table_in(declared).get("path")
            yield name, self._template(file, where, takes_text=False, is_wrapper=False)

    def _template(self, file: Any, where: str, *, takes_text: bool, is_wrapper: bool) -> Template:
        table = file if isinstance(file, Mapping) else {PATH: file}
        key = str(table.get(PATH))
        text = table.get(DATA)
        if text is None:
            text = self._read(key)
        if text is None:
            raise ConfigError(f"{where}: there is no template file {key}")
        return Template(key, text, takes_text, is_wrapper)

    def _provider(self, variant: Mapping[str, Any]) -> str | None:
        """Return the type of the first provider of a variant's model."""
        name = str(variant.get("model", ""))
        model = table_in(table_in(self._document, "models"), name)
        routing = model.get("routing") or [None]
        provider = table_in(table_in(model, "providers"), str(routing[0]))
        if "type" in provider:
            return str(provider["type"])
        return name.partition("::")[0] if "::" in name else None


def table_in(value: Any, name: str | None = None) -> Mapping[str, Any]:
    """Return a table, or one in it; empty when there is none."""
    table = value if isinstance(value, Mapping) else {}
    return table if name is None else table_in(table.get(name))


def from_snapshot(name: str, text: str, templates: Mapping[str, str]) -> Configuration:
    """Return the configuration of a snapshot.

    Args:
        name: Its name in errors.
        text: The configuration (TOML), with the contents of its files.
        templates: The files that templates include, by name.

    Raises:
        ConfigError: It is not TOML.
    """
    return Configuration(name, parsed(name, text), read=templates.get, load=templates.get)


def parsed(name: str, text: str) -> dict[str, Any]:
    """A configuration's text as tables.

    Raises:
        ConfigError: It is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error
