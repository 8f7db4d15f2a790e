"""Set up minijinja, the template engine of the gateway, so that it renders the same text.

The Python package is the same engine with additions that the gateway lacks, and with Python's values.
Arguments therefore are passed as expressions (`literal`), maps in templates are sorted
(`source`), and the additions are removed, so that a template which fails in the gateway fails here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trajkit._core.lazy import need
from trajkit.errors import DataError
from trajkit.sources.tensorzero.render.config import Template
from trajkit.sources.tensorzero.render.literal import expression, is_float
from trajkit.sources.tensorzero.render.source import SPELLED, ready

_FOREIGN_FILTERS = (
    "datetimeformat",
    "dateformat",
    "timeformat",
    "filesizeformat",
    "pluralize",
    "random",
    "striptags",
    "truncate",
    "urlencode",
    "wordcount",
    "wordwrap",
)
_FOREIGN_GLOBALS = ("cycler", "joiner", "lipsum", "now", "randrange")
# the output of a template with it depends on the engine
_REVEALING = ("debug",)

_EXPONENT = re.compile(r'"(?:[^"\\]|\\.)*"|(\d)e(?=\d)')
_LARGE = 1e16  # from here on floats have an exponent
_JSON_NAME = re.compile(r"\.(json5?|js|ya?ml)(\.j2|\.jinja2?)?$")
_SELF = re.compile(r"\bself\b(?!\s*\.)")
_OWN_JSON = re.compile(r"['\"]tojson['\"]|\bautoescape\b")

_UNREACHABLE = frozenset({"loop", "self"})
"""Names that cannot be assigned."""


class RenderError(DataError):
    """A prompt cannot be rendered.

    The message has the reason without any data, so that equal ones count together.
    """


class Engine:
    """Renders templates of one configuration.

    Args:
        load: Returns the text of an included template; None when there is none.
    """

    def __init__(self, load: Callable[[str], str | None]) -> None:
        self._minijinja = need("minijinja", extra="render")
        self._load = load
        self._is_missing = False
        self._environment = self._new()
        self._sources: dict[str, _Source] = {}
        self._names: dict[str, bool] = {}

    def _new(self) -> Any:
        environment = self._minijinja.Environment(
            loader=self._included,
            undefined_behavior="strict",
            pycompat=False,  # the methods of Python's values
            debug=False,  # errors would carry the data
        )
        for name in _FOREIGN_FILTERS:
            environment.remove_filter(name)
        for name in (*_FOREIGN_GLOBALS, *_REVEALING):
            environment.remove_global(name)
        environment.add_filter(SPELLED, self._spelled)
        return environment

    def _included(self, name: str) -> str:
        """The text of a template that another one names."""
        text = self._load(name)
        if text is None:
            # the gateway fails even with `ignore missing`
            self._is_missing = True
            return "{{ nothing|such_a_template_is_not_there }}"
        return ready(text)

    def _spelled(self, text: str) -> Any:
        """The output of `tojson`, with exponents as the gateway's JSON library writes them: 1e+16."""
        return self._minijinja.safe(_EXPONENT.sub(_with_sign, text))

    def render(self, template: Template, arguments: Mapping[str, Any]) -> str:
        """Render a template.

        Args:
            template: The template.
            arguments: Values that `literal.read_json` gave, by name.

        Raises:
            RenderError: It cannot be rendered, for example because a variable is missing.
        """
        source = self._sources.get(template.key) or self._read(template)
        if missing := source.unreachable & arguments.keys():
            raise RenderError(
                f"{template.key} uses an argument {min(missing)!r}: only the gateway can provide it"
            )
        if source.writes_json and _has_exponent(list(arguments.values())):
            raise RenderError(f"{template.key} escapes a number above 1e16, which only the gateway can write")
        # the assignments are on the first line of the template, so that its lines keep their numbers
        given = "".join(
            f"{{% set {name} = {expression(value)} %}}"
            for name, value in arguments.items()
            if self._is_name(name)
        )
        self._is_missing = False
        try:
            return str(self._environment.render_str(given + source.text, template.key))
        except self._minijinja.TemplateError as error:
            if "panic" in str(error):  # the engine fell over, and this one never renders again
                self._environment = self._new()
            raise RenderError(self._reason(template.key, error)) from error
        except UnicodeEncodeError as error:
            raise RenderError("the input has an unpaired surrogate") from error

    def _reason(self, key: str, error: Exception) -> str:
        if self._is_missing:
            return f"{key} includes a missing template"
        kind = str(error).partition(" (in ")[0].partition(":")[0]  # what comes after it may quote the data
        line = getattr(error, "line", None)
        return f"{kind} in {key}" + ("" if line is None else f":{line}")

    def _read(self, template: Template) -> _Source:
        text = ready(template.text)
        try:
            asked = self._environment.undeclared_variables_in_str(text)
        except self._minijinja.TemplateError as error:
            raise RenderError(self._reason(template.key, error)) from error
        if _SELF.search(text):
            asked.add("self")  # which the engine takes for blocks of the template
        writes_json = bool(_JSON_NAME.search(template.key) or _OWN_JSON.search(text))
        self._sources[template.key] = _Source(text, _UNREACHABLE & asked, writes_json)
        return self._sources[template.key]

    def _is_name(self, name: str) -> bool:
        """Whether a template can use an argument with this name, according to the engine."""
        if name not in self._names:
            # the name comes from the data: nothing but a name may become part of a template
            if not name.isidentifier():
                return False
            try:
                self._environment.render_str(f"{{% set {name} = 1 %}}")
                self._names[name] = True
            except (self._minijinja.TemplateError, UnicodeEncodeError):
                self._names[name] = False
        return self._names[name]


class _Source(NamedTuple):
    """A prepared template."""

    text: str
    unreachable: frozenset[str]
    """Arguments that it uses and that cannot be passed to it."""
    writes_json: bool
    """Whether it may write JSON without the changed filter."""


def _with_sign(found: re.Match[str]) -> str:
    return found.group() if found[1] is None else f"{found[1]}e+"


def _has_exponent(value: Any) -> bool:
    """Whether a number in a value is written with an exponent above zero."""
    if isinstance(value, dict):
        return any(map(_has_exponent, value.values()))
    if isinstance(value, list):
        return any(map(_has_exponent, value))
    return isinstance(value, int | float) and is_float(value) and abs(value) >= _LARGE
