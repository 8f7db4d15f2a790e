"""YAML with the line of every value, and texts as typed: `1:40` is not a number, `no` is not false."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trajkit._core.outside import text_from_outside
from trajkit.errors import ConfigError

_LONGEST = 200_000
"""Maximum characters of a document, with every alias written out."""

_PLAIN = {"true": True, "True": True, "false": False, "False": False}
_NOTHING = ("", "~", "null", "Null", "NULL")

_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
)
"""The tags of plain values, lists and mappings."""

Place = tuple[str, ...]
"""Keys and positions on the way to a value."""


class Located(NamedTuple):
    """A document and the lines of its parts."""

    data: Any
    """Mappings, lists, texts, true, false and None."""
    lines: Mapping[Place, int]
    """Line of each part, from 1; of a part of a mapping the line of its key."""
    path: Path
    """The file, for messages."""

    def line(self, place: Place) -> int:
        """The line of a part, or of the nearest thing around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def error(self, place: Place, message: str, *, hint: str | None = None) -> ConfigError:
        """An error that begins with the file and the line."""
        return ConfigError(f"{self.path} line {self.line(place)}: {message}", hint=hint)


def read_yaml(path: Path) -> Located:
    """Read a document.

    Raises:
        ConfigError: It cannot be read, is not YAML, or has a key twice.
    """
    import yaml

    text = text_from_outside(path, max_bytes=_LONGEST, error=ConfigError)
    lines: dict[Place, int] = {}
    located = Located(None, lines, path)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return located if root is None else located._replace(data=_Reader(located, lines).value(root, ()))
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deep") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise ConfigError(f"{path} line {line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error


def write_yaml(data: Any) -> str:
    """A document that `read_yaml` reads as the same; texts are not quoted unless necessary."""
    import yaml

    class Dumper(yaml.SafeDumper):
        yaml_implicit_resolvers: dict[str, Any] = {}

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def write_text(dumper: Any, text: str) -> Any:
        is_other = text in _PLAIN or text in _NOTHING
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if is_other else None)

    def write_other(dumper: Any, value: Any) -> Any:
        text = {"True": "true", "False": "false", "None": "null"}.get(str(value), str(value))
        return dumper.represent_scalar("tag:yaml.org,2002:str", text)

    Dumper.add_representer(str, write_text)
    for kind in (bool, type(None), int, float):
        Dumper.add_representer(kind, write_other)
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


class _Reader:
    """Makes values from nodes, and refuses aliases that would make too many of them."""

    def __init__(self, located: Located, lines: dict[Place, int]) -> None:
        self._located, self._lines = located, lines
        self._n_characters = 0

    def value(self, node: Any, place: Place, around: tuple[int, ...] = ()) -> Any:
        """The value of a node, with those of all that it holds."""
        import yaml

        self._lines.setdefault(place, node.start_mark.line + 1)
        if id(node) in around:
            raise self._located.error(place, "it contains itself")
        if node.tag not in _TAGS:
            raise self._located.error(place, f"the tag {node.tag} means nothing here")
        around = (*around, id(node))
        if isinstance(node, yaml.ScalarNode):
            self._count(node, place)
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*place, str(number)), around) for number, each in enumerate(node.value)]
        made: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._located.error(place, "a key is not a text")
            inner = (*place, key.value)
            if key.value in made:
                raise ConfigError(
                    f"{self._located.path} line {key.start_mark.line + 1}: {key.value!r} is given already,"
                    f" in line {self._lines[inner]}"
                )
            self._count(key, inner)
            self._lines[inner] = key.start_mark.line + 1
            made[key.value] = self.value(value, inner, around)
        return made

    def _count(self, scalar: Any, place: Place) -> None:
        self._n_characters += len(scalar.value) + 1
        if self._n_characters > _LONGEST:
            raise self._located.error(
                place, f"it has more than {_LONGEST:,} characters when aliases are written out"
            )


def _scalar(node: Any) -> bool | str | None:
    text: str = node.value
    if node.style is None:  # neither in quotes nor a block
        if text in _PLAIN:
            return _PLAIN[text]
        if text in _NOTHING:
            return None
    return text
