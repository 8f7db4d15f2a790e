"""Bounds for chat templates: programs that come with a model and that jinja2 runs in its sandbox.

The sandbox keeps a template away from files and from Python, but does not limit its computation.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from trajkit._core.lazy import need

_LONGEST_S = 2.0
"""Processor seconds for one conversation. A long conversation takes some milliseconds."""
_LONGEST_VALUE = 10**7
_MOST_BITS = 4096
_MOST_POWER = 64
_WIDTH = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)|\{[^{}]*:[^{}]*(\d{4}|\{)")
_WIDENING = frozenset({"batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "zfill"})


@functools.cache
def bound_templates() -> None:
    """Let transformers render every chat template of this process within these bounds.

    transformers creates the environment of a template itself and accepts no other: this function replaces the
    class by a stricter one, and clears the cache of compiled templates.
    """
    templates: Any = need("transformers.utils.chat_template_utils", extra="tokens")
    templates.ImmutableSandboxedEnvironment = _bounded(templates.ImmutableSandboxedEnvironment)
    templates._compile_jinja_template.cache_clear()


def _bounded(sandbox: Any) -> Any:
    """Return a sandbox class whose templates end in time, because loops and calls check the clock."""
    jinja = need("jinja2", extra="tokens")
    nodes = need("jinja2.nodes", extra="tokens")

    def check(context: Any) -> None:
        if time.thread_time() > context.ends_at:
            raise TimeoutError(f"it computes for longer than {_LONGEST_S:g} s")

    @jinja.pass_context  # type: ignore[untyped-decorator]
    def checked(context: Any, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            check(context)
            yield value

    def bounded(value: Any) -> Any:
        if isinstance(value, str | list | tuple) and len(value) > _LONGEST_VALUE:
            raise jinja.TemplateRuntimeError("it makes a value that is too large")
        return value

    surroundings = (nodes.EvalContext, jinja.Environment, jinja.runtime.Context)

    def guarded(name: str, made_by: Any) -> Any:
        @functools.wraps(made_by)  # attributes tell jinja2 which arguments to pass to a filter
        def made(*args: Any, **kwargs: Any) -> Any:
            given = [each for each in (*args, *kwargs.values()) if not isinstance(each, surroundings)]
            if _widens(name, given):
                raise jinja.TemplateRuntimeError(f"its {name} makes a value that is too large")
            return bounded(made_by(*args, **kwargs))

        return made

    class Bounder(jinja.visitor.NodeTransformer):  # type: ignore[misc,name-defined]
        def visit_For(self, node: Any) -> Any:
            self.generic_visit(node)
            node.iter = self._through(node.iter, "checked", node.lineno)
            return node

        def visit_Concat(self, node: Any) -> Any:
            return self._through(self.generic_visit(node), "bounded", node.lineno)

        def visit_AssignBlock(self, node: Any) -> Any:
            self.generic_visit(node)
            node.filter = self._through(node.filter, "bounded", node.lineno)
            return node

        @staticmethod
        def _through(node: Any, name: str, lineno: int) -> Any:
            return nodes.Filter(node, name, [], [], None, None).set_lineno(lineno)

    class Template(jinja.Template):  # type: ignore[misc,name-defined]
        def render(self, *args: Any, **kwargs: Any) -> str:
            text: str = bounded(super().render(*args, **kwargs))
            return text

    class Context(jinja.runtime.Context):  # type: ignore[misc,name-defined]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.ends_at = time.thread_time() + _LONGEST_S

        def derived(self, *args: Any, **kwargs: Any) -> Any:
            found = super().derived(*args, **kwargs)
            found.ends_at = self.ends_at
            return found

    class Environment(sandbox):  # type: ignore[misc]
        context_class = Context
        template_class = Template
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.filters.update({name: guarded(name, each) for name, each in self.filters.items()})
            self.filters.update(bounded=bounded, checked=checked)
            self.globals.pop("lipsum", None)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
            check(__context)
            method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
            text, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
            if isinstance(text, str) and _widens(name, [text, *args, *kwargs.values()]):
                raise jinja.TemplateRuntimeError(f"its {name} makes a value that is too large")
            return bounded(super().call(__context, __obj, *args, **kwargs))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if _is_too_large(operator, left, right):
                raise jinja.TemplateRuntimeError(f"its {operator} makes a value that is too large")
            return super().call_binop(context, operator, left, right)

        def _generate(self, source: Any, *args: Any, **kwargs: Any) -> str:
            if not hasattr(self.filters["tojson"], "__wrapped__"):  # transformers installs its own filter
                self.filters["tojson"] = guarded("tojson", self.filters["tojson"])
            written: str = super()._generate(Bounder().visit(source), *args, **kwargs)
            return written

    return Environment


def _is_too_large(operator: str, left: Any, right: Any) -> bool:
    """Whether an operation makes a long text, list or number from short ones."""
    if isinstance(left, int) and isinstance(right, int):
        if operator == "**":
            return abs(right) > _MOST_POWER or left.bit_length() * abs(right) > _MOST_BITS
        return left.bit_length() + right.bit_length() > _MOST_BITS
    if operator == "%":
        return isinstance(left, str) and _WIDTH.search(left) is not None
    lengths = [len(each) if isinstance(each, str | list | tuple) else None for each in (left, right)]
    if operator == "+":
        return sum(each or 0 for each in lengths) > _LONGEST_VALUE
    times = next((each for each in (left, right) if isinstance(each, int)), 0)
    return operator == "*" and max(each or 0 for each in lengths) * times > _LONGEST_VALUE


def _widens(name: str, values: list[Any]) -> bool:
    """Whether a filter or a method makes a long text or list from short values, the first its subject."""
    subject, *others = values or [None]
    if name == "format":
        return isinstance(subject, str) and _WIDTH.search(subject) is not None
    if name == "tojson":
        return any(isinstance(each, int) and each > _MOST_POWER for each in others)
    if name in _WIDENING:
        n_lines = subject.count("\n") + subject.count("\t") + 1 if isinstance(subject, str) else 1
        return any(isinstance(each, int) and each * n_lines > _LONGEST_VALUE for each in others)
    if name == "join" and others and all(hasattr(each, "__len__") for each in (subject, others[0])):
        between, parts = (subject, others[0]) if isinstance(subject, str) else (others[0], subject)
        lengths = map(len, filter(lambda part: isinstance(part, str), parts))
        return sum(lengths) + len(str(between)) * len(parts) > _LONGEST_VALUE
    if name == "replace" and isinstance(subject, str) and len(others) > 1:
        return len(subject) + subject.count(str(others[0])) * len(str(others[1])) > _LONGEST_VALUE
    return False
