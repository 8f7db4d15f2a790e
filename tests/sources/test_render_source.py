"""Maps that a template writes out are put in order, and nothing else of it changes."""

from __future__ import annotations

import pytest

from trajkit.errors import DataError
from trajkit.sources.tensorzero.render.source import ready


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{{ {'b': 1, 'a': 2} }}", "{{ { 'a': 2,'b': 1} }}"),
        ("{% set x = {'b': {'d': [1, {'z': 1, 'y': 2}], 'c': 2}, 'a': 1} %}", None),
        ('{{ {"b": "}, {", \'a\': \'it\\\'s: {"x": 1}\'} }}', None),
        ("{{ {'b': x['k'][1:2], 'a': f(1, 2)} }}", "{{ { 'a': f(1, 2),'b': x['k'][1:2]} }}"),
        ("{{ {10: 1, 9: 2, 'x': 3} }}", "{{ { 9: 2,10: 1, 'x': 3} }}"),
        ("{{ dict(b=1, a=2) }}", "{{ dict( a=2,b=1) }}"),
        ("{{ dict(b=dict(d=1, c=2), a=x == 1) }}", "{{ dict( a=x == 1,b=dict( c=2,d=1)) }}"),
    ],
)
def test_maps_are_sorted_by_key(source: str, wanted: str | None) -> None:
    done = ready(source)
    if wanted is not None:
        assert done == wanted
    assert ready(done) == done
    assert sorted(done) == sorted(source)  # the same characters
    assert done != source


@pytest.mark.parametrize(
    "source",
    [
        "",
        "no tags { 'b': 1, 'a': 2 } at all",
        "{{ {'a': 1} }} {{ {} }} {{ [1, 2] }} {{ (3, 2) }}",
        "{# {{ {'b': 1, 'a': 2} }} #}",
        "{% raw %}{{ {'b': 1, 'a': 2} }}{% endraw %}{{ x }}",
        "{%- raw -%}{{ {'b': 1, 'a': 2} }}{%- endraw -%}",
        "{{ \"{'b': 1, 'a': 2}\" }}",
        "{% macro m(b=1, a=2) %}{{ f(b=1, a=2) }}{{ x.dict(b=1, a=2) }}{{ mydict(b=1, a=2) }}{% endmacro %}",
        "{{ x -}} text {%- if y -%} {{- z }} {% endif +%}",
        "{{ dict() }}{{ dict(x) }}{{ dict(a=1) }}",
        "an open {{ x",
        "an open {# comment",
        "{% raw %} open",
        "{{ x[1:2] }}{{ 'a' if b else 'c' }}{{ {'a': 1}['a'] }}",
    ],
)
def test_everything_else_stays_as_it_is(source: str) -> None:
    assert ready(source) == source


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("{{ x|tojson }}", "{{ x|tojson|trajkit_spelled }}"),
        ("{{ x | tojson ( indent = 2 )|length }}", "{{ x |tojson( indent = 2 )|trajkit_spelled|length }}"),
        ("{{ [x|tojson(f('a', 1))] }}", "{{ [x|tojson(f('a', 1))|trajkit_spelled] }}"),
        ("{{ '|tojson' }}{{ tojson }}{{ x|tojsonish }}|tojson", None),
    ],
)
def test_json_is_spelled_by_a_filter_of_ours(source: str, wanted: str | None) -> None:
    assert ready(source) == (source if wanted is None else wanted)


@pytest.mark.parametrize("source", ["{{ {'b': 1, key: 2} }}", "{{ {x: 1, y: 2} }}", "{{ dict(x, b=1) }}"])
def test_a_map_whose_keys_are_not_written_out_is_an_error(source: str) -> None:
    with pytest.raises(DataError):
        ready(source)
