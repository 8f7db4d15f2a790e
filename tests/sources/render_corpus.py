"""Templates and values that show how a template engine prints, compares and fails."""

from __future__ import annotations

import random
from typing import Any

PRINTING = [
    "{{ x }}",
    "{{ x }}!\n",
    "\n\n{{ x }}\n\n",
    "  {{- x -}}  .",
    "{{ [x, x] }}",
    "{{ (x, 1) }}",
    "{{ {'b': x, 'a': [x], 'C': 1, 'é': 2} }}",
    "{{ {'b': {'d': 1, 'c': x}, 'a': 2}|tojson }}",
    "{% for k in {'b': 1, 'a': 2} %}{{ k }}{% endfor %}",
    '{{ {"b\\n": 1, "a,}": [1, {"z": 1, "y": 2}]} }}',
    "{{ {10: 'ten', 9: 'nine', 'a': x} }}",
    "{{ {} }}{{ {'a': x,} }}",
    "{{ dict(b=x, a=1) }}{{ dict(a=dict(d=1, c=2)) }}",
    "{{ x ~ '|' ~ x }}",
    "{{ x|string }}",
    "{{ x|tojson }}",
    "{{ x|tojson(true) }}",
    "{{ x|tojson(indent=2) }}",
    "{{ x|tojson|length }}",
    "{{ x | tojson ( indent = 3 ) }}{{ (x|tojson)[:3] }}{{ [x|tojson, {'b': x|tojson, 'a': 1}] }}",
    "{{ x|tojson|upper }}{{ x|tojson is safe }}{{ x|tojson|escape }}",
    "{{ [x]|map('tojson')|join }}",
    "{% filter tojson %}{{ x }}{% endfilter %}",
    "{{ missing|tojson }}",
    "{{ 'in 1e5 \\\" 1e5'|tojson }}{{ [1e300 * 10, '2e2']|tojson }}",
    "{{ x|pprint }}",
    "{{ x|list }}",
    "{{ x|join(', ') }}",
    "{{ [x, none, true]|join('/') }}",
    "{{ x|escape }}{{ x|safe }}",
]
ASKING = [
    "{% if x %}yes{% else %}no{% endif %}",
    "{{ x if x }}",
    "{{ x if x else 'nothing' }}",
    "{{ not x }} {{ x and 1 }} {{ x or 2 }}",
    "{{ x is defined }} {{ x is undefined }} {{ x is none }}",
    "{{ x is string }} {{ x is number }} {{ x is integer }} {{ x is float }} {{ x is boolean }}",
    "{{ x is mapping }} {{ x is sequence }} {{ x is iterable }}",
    "{{ x is true }} {{ x is false }}",
    "{{ x is odd }}",
    "{{ x is startingwith 'a' }}",
    "{{ x is in [1, 'a', none] }} {{ x in [1.0, x] }}",
    "{{ x == x }} {{ x == 1 }} {{ x == 'a' }} {{ x != none }}",
    "{{ x == [1, 2, 3] }} {{ x == {'a': 2, 'b': 1} }}",
    "{{ x < 2 }}",
    "{{ x <= x }}",
    "{{ 'a' in x }}",
    "{{ x|bool }}",
    "{{ x|default('d') }} {{ x|default('d', true) }}",
]
LOOKING_UP = [
    "{{ x.a }}",
    "{{ x['a'] }}",
    "{{ x.a.b.c }}",
    "{{ x.a is defined }}",
    "{{ x.items }}",
    "{{ x.keys is defined }}",
    "{{ x[0] }}",
    "{{ x[-1] }}",
    "{{ x[1:] }}",
    "{{ x[::-1] }}",
    "{{ x|attr('a') }}",
    "{{ x|first }}",
    "{{ x|last }}",
    "{{ x|length }}",
    "{{ x|min }}",
    "{{ x|max }}",
    "{{ x|sum }}",
]
LISTS = [
    "{% for i in x %}{{ loop.index }}/{{ loop.length }}:{{ i }};{% else %}empty{% endfor %}",
    "{% for i in x if i %}{{ i }}{% endfor %}",
    "{% for k, v in x|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for i in x %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ i }}"
    "{% if loop.index == 3 %}{% break %}{% endif %}{% endfor %}",
    "{% for i in x %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in x recursive %}{{ loop(i) if i is sequence and i is not string else i }}{% endfor %}",
    "{{ x|items|list }}",
    "{{ x|dictsort }}",
    "{{ x|dictsort(by='value', reverse=true) }}",
    "{{ x|sort }}",
    "{{ x|sort(reverse=true) }}",
    "{{ x|sort(attribute='a') }}",
    "{{ x|reverse }}",
    "{{ x|unique }}",
    "{{ x|map('upper')|join }}",
    "{{ x|map(attribute='a')|list }}",
    "{{ x|map(attribute='a', default=0)|list }}",
    "{{ x|select|list }} {{ x|reject('none')|list }}",
    "{{ x|selectattr('a')|list }}",
    "{{ x|selectattr('a', '==', 1)|list }}",
    "{{ x|groupby('a') }}",
    "{{ x|batch(2, '-') }}",
    "{{ x|slice(2) }}",
    "{{ x|zip(x)|list }}",
    "{{ x|chain([1])|list }}",
]
TEXT = [
    "{{ x|upper }}{{ x|lower }}{{ x|title }}{{ x|capitalize }}",
    "{{ x|trim }}|{{ x|trim('a') }}",
    "{{ x|replace('a', '<b>') }}",
    "{{ x|indent(2) }}",
    "{{ x|indent(width=3, first=true, blank=true) }}",
    "{{ x|lines }}",
    "{{ x|split }}",
    "{{ x|split('a')|list }}",
    "{{ '%s and %r'|format(x, x) }}",
    "{% filter upper %}{{ x }}{% endfilter %}",
]
NUMBERS = [
    "{{ x + 1 }}",
    "{{ x - 0.5 }}",
    "{{ x * 2 }}",
    "{{ x / 3 }}",
    "{{ x // 3 }}",
    "{{ x % 3 }}",
    "{{ x ** 2 }}",
    "{{ -x }}",
    "{{ x|int }}",
    "{{ x|float }}",
    "{{ x|abs }}",
    "{{ x|round }} {{ x|round(2) }}",
    "{{ x + x }}",
    "{{ range(x)|list }}",
]
CONTROL = [
    "{% set y = x %}{{ y }}",
    "{% set y %}<{{ x }}>{% endset %}{{ y }}",
    "{% set a, b = [x, 2] %}{{ a }}{{ b }}",
    "{% set x = 5 %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for i in x %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% macro m(a, b=x) %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(x, b=2) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}{{ x }}{% endcall %}",
    "{% with y = x, z = 1 %}{{ y }}{{ z }}{% endwith %}",
    "{% raw %}{{ x }} {'b': 1, 'a': 2} {% if %}{% endraw %}{{ x }}",
    "{# {{ x }} {'b': 1, 'a': 2} #}.",
    "a\n{%- if true -%}\n b \n{%- endif -%}\n c\n\n",
    "{% autoescape 'html' %}{{ x }}{% endautoescape %}",
    "{% autoescape 'json' %}{{ x }}{% endautoescape %}",
    "{% block b %}{{ x }}{% endblock %}{{ self.b() }}",
]
MISSING = [
    "{{ missing }}",
    "{{ missing is defined }}{{ missing|default('d') }}",
    "{% if missing %}{% endif %}",
    "{{ missing.deeper }}",
    "{% for i in missing %}{% endfor %}",
    "{{ 'a' ~ missing }}",
    "{{ [missing] }}",
    "{{ missing == 1 }}",
    "{{ items is defined }}{{ keys is defined }}{{ get is defined }}{{ update is defined }}",
    "{{ values }}",
    "{{ x.missing }}",
    "{{ x.missing is defined }}",
    "{{ x.missing.deeper is defined }}",
    "{{ x.missing|default('d') }}",
    "{{ loop }}",
    "{{ self }}",
    "{{ x() }}",
    "{{ nothing(1) }}",
    "{{ x|nothing }}",
    "{{ x is nothing }}",
]
# what Python's values, or the engine's package for Python, would have and the gateway has not
FOREIGN = [
    "{{ x.items() }}",
    "{{ x.keys()|list }}",
    "{{ x.get('a') }}",
    "{{ x.upper() }}",
    "{{ x.strip() }}",
    "{{ x.append(1) }}",
    "{{ x.format(1) }}",
    "{{ x|truncate(3) }}",
    "{{ x|truncate(length=3) }}",
    "{{ x|wordcount }}",
    "{{ x|wordwrap(10) }}",
    "{{ x|striptags }}",
    "{{ x|filesizeformat }}",
    "{{ x|urlencode }}",
    "{{ x|pluralize }}",
    "{{ [x]|random }}",
    "{{ x|datetimeformat }}",
    "{{ x|dateformat }}",
    "{{ x|timeformat }}",
    "{{ now() }}",
    "{{ lipsum() }}",
    "{{ cycler(['a'])() }}",
    "{{ joiner()() }}",
    "{{ randrange(1) }}",
]
TEMPLATES = [*PRINTING, *ASKING, *LOOKING_UP, *LISTS, *TEXT, *NUMBERS, *CONTROL, *MISSING, *FOREIGN]

_ENDINGS = ("html", "htm", "xml", "json", "json5", "js", "yaml", "html.j2", "json.jinja", "txt", "minijinja")
ESCAPED = {key: ["{{ x }}", "{{ x|safe }}{{ x|escape }}", "{{ x|tojson }}", "{{ [x] }}"] for key in _ENDINGS}
"""Templates whose file name says how values are escaped."""

PARTS = {
    "part.minijinja": "[{{ x }}]\n",
    "folder/macros.minijinja": "{% macro shout(a) %}{{ a|upper }}{% endmacro %}"
    "{% set b = {'z': 1, 'y': 2} %}",
    "folder/base.minijinja": "<{% block inside %}nothing{% endblock %}>",
    "folder/page.html": "{{ x }}",
}
INCLUDING = [
    "{% include 'part.minijinja' %}.",
    "{% include 'folder/page.html' %}",
    "{% include ['nowhere', 'part.minijinja'] %}",
    "{% include 'nowhere' ignore missing %}.",
    "{% include 'nowhere' %}",
    "{% include '../secret' ignore missing %}.",
    "{% import 'folder/macros.minijinja' as m %}{{ m.shout('a') }}{{ m.b }}",
    "{% from 'folder/macros.minijinja' import shout %}{{ shout('a') }}",
    "{% extends 'folder/base.minijinja' %}{% block inside %}{{ x }}{{ super() }}{% endblock %}",
]
"""Templates that name others: files below the folder that the gateway may read."""


def _nested(depth: int) -> Any:
    value: Any = "in"
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    7,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**40,
    1.0,
    0.1,
    -0.0,
    2.5,
    1e16,
    1e22,
    -3.5e-9,
    5e-324,
    1.7976931348623157e308,
    123456789.125,
    "",
    "a",
    "text and more text",
    "  padded\n",
    "é 漢字 😀 ﷽ ",
    "<b>&amp; 'single' \"double\" /</b> `",
    "line\nbreak\r\n\ttab",
    "back\\slash \\n \\u0041 \\x41 \\s",
    "\x01\x08\x0b\x0c\x1f\x7f\u2028\ufeff",
    "{{ x }} {% if %} {# #} %} }}",
    "3",
    " 2.50 ",
    "x" * 20_000,
    [],
    [1, 2, 3],
    [3, 1, 2, 2],
    [2.0, 1, "1", None],
    ["b", "a", "é", "A"],
    [None, True, False],
    [[1, [2, []]], {}],
    [{"a": 1, "z": 2}, {"z": 0, "a": 2}, {"a": 1}],
    {},
    {"b": 1, "a": 2},
    {"z": None, "é": 1, "10": 1, "9": 2, "Z": [True]},
    {"a": {"b": {"c": [1, 2.5, None, True, "é\n"]}}},
    {"a b": 1, "": 2, "'": 3, '"': 4, "\n": 5, "\\": 6},
    {"items": [1], "keys": 2, "get": {}, "a": "x"},
    _nested(20),
]

MANY = [
    "{{ x }}",
    "{{ x|tojson }}",
    "{{ x|tojson(indent=4) }}",
    "{{ [x, {'k': x}] }}{% if x %}yes{% endif %}",
    "{% for i in x %}{{ loop.index }}:{{ i }};{% endfor %}",
    "{{ x|string|upper|replace('A', 'aa') }}",
]
"""Templates that show all of a value."""

_PIECES = [*"aé漢😀\"'\\\n\t\x02<&/ 0\u2028\x7f", "{{", "%}"]


def any_value(chosen: random.Random, depth: int = 3) -> Any:
    """Some JSON value."""
    kind = chosen.randrange(8 if depth else 6)
    if kind == 0:
        return chosen.choice([None, True, False])
    if kind == 1:
        return chosen.randrange(-(10**9), 10**9)
    if kind == 2:
        return chosen.choice([-1, 1]) * chosen.getrandbits(chosen.randrange(1, 70))
    if kind == 3:
        return chosen.choice([chosen.uniform(-5, 5), chosen.random() * 10.0 ** chosen.randrange(-300, 300)])
    if kind in (4, 5):
        return "".join(chosen.choice(_PIECES) for _ in range(chosen.randrange(9)))
    values = [any_value(chosen, depth - 1) for _ in range(chosen.randrange(5))]
    if kind == 6:
        return values
    return {"".join(chosen.choice(_PIECES) for _ in range(chosen.randrange(3))): value for value in values}
