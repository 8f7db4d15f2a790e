"""Bounds for chat templates: programs that come with a model and that jinja2 runs in its sandbox.

The sandbox keeps a template from files and from Python, but not from computing for ever.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from trajkit._core.lazy import need

_LONGEST_S = 2.0
"""Seconds of the processor for one conversation. A long one takes some milliseconds."""
_LONGEST_VALUE = 10**7
_MOST_BITS = 4096
_MOST_POWER = 64
_WIDTH = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")


@functools.cache
def bound_templates() -> None:
    """Let transformers render every chat template of this process within these bounds.

    transformers makes the environment of a template itself and takes no other; this puts a stricter one in
    the place of its name, and has templates that were read before read again.
    """
    templates: Any = need("transformers.utils.chat_template_utils", extra="tokens")
    templates.ImmutableSandboxedEnvironment = _bounded(templates.ImmutableSandboxedEnvironment)
    templates._compile_jinja_template.cache_clear()


def _bounded(sandbox: Any) -> Any:
    """A sandbox whose templates end in time, because loops and calls look at the clock."""
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
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.filters["checked"] = checked

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
            check(__context)
            return super().call(__context, __obj, *args, **kwargs)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if _is_too_large(operator, left, right):
                raise jinja.TemplateRuntimeError(f"its {operator} makes a value that is too large")
            return super().call_binop(context, operator, left, right)

        def _generate(self, source: Any, *args: Any, **kwargs: Any) -> str:
            for loop in list(source.find_all(nodes.For)):
                loop.iter = nodes.Filter(loop.iter, "checked", [], [], None, None).set_lineno(loop.lineno)
            written: str = super()._generate(source, *args, **kwargs)
            return written

    return Environment


def _is_too_large(operator: str, left: Any, right: Any) -> bool:
    """Whether an operation makes a long text, list or number of short ones."""
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
