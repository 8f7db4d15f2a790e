"""What TensorZero's own filters select, `--where` selects; where TensorZero is wrong, ours is not."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.matrix import daily
from tests.sources.row_database import BASE_MS
from trajkit.errors import NothingMatched
from trajkit.sources.choose import list_steps
from trajkit.sources.request import ExportRequest
from trajkit.sources.tensorzero.connect.database import TensorZero, open_database
from trajkit.sources.tensorzero.export.choose import begin, open_workspace
from trajkit.sources.tensorzero.export.export import _decide
from trajkit.stack.clickhouse import ClickHouse as Server

N_EPISODES = 60
CONFIG = """
[gateway]
disable_pseudonymous_usage_analytics = true
observability.enabled = true
observability.async_writes = false

[models.m]
routing = ["p"]
[models.m.providers.p]
type = "openai"
model_name = "m"
api_base = "http://127.0.0.1:9/v1/"
api_key_location = "none"

[functions.act]
type = "json"
[functions.act.variants.a]
type = "chat_completion"
model = "m"
json_mode = "off"
[functions.act.variants.b]
type = "chat_completion"
model = "m"
json_mode = "off"

[functions.talk]
type = "chat"
[functions.talk.variants.a]
type = "chat_completion"
model = "m"
"""
METRICS = {
    "score": ("float", "episode"),
    "won": ("boolean", "episode"),
    "step_score": ("float", "inference"),
    "step_ok": ("boolean", "inference"),
}
LOGGED = (0.7, 0.1, 1 / 3, 0.5, 0.25, 1.0, 0.0, -2.0, 1e-7)
BOUNDS = (
    0.5,
    0.25,
    1.0,
    0.0,
    -2.0,
    0.6,
    0.3,
    2.0,
)  # nothing that single precision rounds and that was logged
TAGS = {"level": ("1", "2", "3"), "who": ("me", "it's; \\ you", ""), "trajkit.seed": ("7",)}
COMPARISONS = ("<", "<=", "=", ">", ">=", "!=")


class World(NamedTuple):
    """A database, read by both."""

    database: TensorZero
    gateway: Any
    rows: Any


def step(rows: Any, episode_id: str, at_ms: int, *, function: str, variant: str, tags: dict[str, str]) -> str:
    inference_id = rows.id(at_ms=at_ms)
    if function == "act":
        known = {"inference_id": inference_id, "function": function, "variant": variant}
        return str(rows.json_step(episode_id, raw="{}", calls=0, tags=tags, **known))
    own = {"id": inference_id, "variant_name": variant, "processing_time_ms": 20, "tags": tags}
    user = {"role": "user", "content": [{"type": "text", "text": "go"}]}
    said = [{"type": "text", "text": "yes"}]
    rows.chat_step(episode_id, output=said, prompt=[user], calls=0, **own)
    return str(inference_id)


def metric(rows: Any, name: str, target_id: str, value: float | bool, at_ms: int) -> None:
    log = rows.float if METRICS[name][0] == "float" else rows.boolean
    log(target_id, value, metric=name, id=rows.id(at_ms=at_ms))


def log(rows: Any, seed: int) -> None:
    """Episodes of both functions, scored or not, some of them twice, a second and more between two scores."""
    lot = random.Random(seed)
    for number in range(N_EPISODES):
        at = BASE_MS + number * 60_000 + lot.randrange(1000)
        episode_id = rows.id(at_ms=at)
        steps = []
        for place in range(lot.randint(1, 5)):
            tags = {key: lot.choice(values) for key, values in TAGS.items() if lot.random() < 0.6}
            function = lot.choice(("act", "act", "talk"))
            variant = "a" if function == "talk" else lot.choice("ab")
            step_at = at + place * 1000 + lot.randrange(1000)
            steps.append(step(rows, episode_id, step_at, function=function, variant=variant, tags=tags))
        late = itertools.count(at + 10_000, 1500)
        for name, (kind, level) in METRICS.items():
            for target in [episode_id] if level == "episode" else steps:
                for _ in range(lot.choice((0, 1, 1, 2))):
                    value = lot.choice(LOGGED) if kind == "float" else lot.random() < 0.5
                    metric(rows, name, target, value, next(late))
        for inference_id in steps:
            if lot.random() < 0.2:
                rows.demonstration(inference_id, [{"type": "text", "text": "better"}])


@pytest.fixture(scope="module")
def gateway(server: Server, client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    import tensorzero

    path = Path(tmp_path_factory.mktemp("config")) / "tensorzero.toml"
    metrics = "".join(
        f'[metrics.{name}]\ntype = "{kind}"\nlevel = "{level}"\noptimize = "max"\n'
        for name, (kind, level) in METRICS.items()
    )
    path.write_text(CONFIG + metrics)
    url = server.secret_url.get_secret_value()
    opened = tensorzero.TensorZeroGateway.build_embedded(config_file=str(path), clickhouse_url=url)
    yield opened
    opened.close()


@pytest.fixture
def world(url: str, rows: Any, gateway: Any) -> Iterator[World]:
    """A database without rows."""
    with contextlib.closing(open_database(url)) as database:
        yield World(database, gateway, rows)


# -- both answers --------------------------------------------------------------------------------------------


def theirs(world: World, tree: Filter | None, **options: Any) -> set[str]:
    """The inferences that TensorZero lists."""
    import tensorzero

    world.rows.write()
    request = tensorzero.ListInferencesRequest(
        filters=None if tree is None else tree.theirs(), output_source="inference", limit=100_000, **options
    )
    return {each.inference_id for each in world.gateway.list_inferences(request=request).inferences}


def ours(world: World, where: str | None, **options: Any) -> set[str]:
    """The steps that an export selects."""
    request = ExportRequest(where=where, include_eval=True, as_of=datetime.now(UTC), **options)
    with open_workspace() as opened, begin(world.database, request) as beginning:
        workspace = opened()
        try:
            _decide(workspace, world.database, beginning, lambda *progress: None)
        except NothingMatched:
            return set()
        list_steps(workspace.connection)
        rows = workspace.connection.execute("SELECT inference_id FROM chosen_step WHERE unselected IS NULL")
        return {str(row[0]) for row in rows.fetchall()}


# -- filters in both languages -------------------------------------------------------------------------------


class Filter(NamedTuple):
    """A condition, as TensorZero's tree and as ours in words."""

    kind: str
    values: tuple[Any, ...] = ()
    children: tuple[Filter, ...] = ()

    def theirs(self) -> Any:
        import tensorzero as t

        match self.kind, self.values:
            case "float", (name, comparison, value):
                return t.InferenceFilterFloatMetric(
                    metric_name=name, comparison_operator=comparison, value=value
                )
            case "boolean", (name, value):
                return t.InferenceFilterBooleanMetric(metric_name=name, value=value)
            case "demonstration", (has_one,):
                return t.InferenceFilterDemonstrationFeedback(has_demonstration=has_one)
            case "tag", (key, comparison, value):
                return t.InferenceFilterTag(key=key, comparison_operator=comparison, value=value)
            case "time", (comparison, moment):
                return t.InferenceFilterTime(comparison_operator=comparison, time=moment)
            case "and", _:
                return t.InferenceFilterAnd(children=[child.theirs() for child in self.children])
            case "or", _:
                return t.InferenceFilterOr(children=[child.theirs() for child in self.children])
        (child,) = self.children
        return t.InferenceFilterNot(child=child.theirs())

    def ours(self) -> str:
        match self.kind, self.values:
            case "float", (name, comparison, value):
                return f"{name} {comparison} {value!r}"
            case "boolean", (name, value):
                return f"{name} = {str(value).lower()}"
            case "demonstration", (has_one,):
                return f"step.demonstration is {'not ' if has_one else ''}null"
            case "tag", (key, comparison, value):
                quoted = value.replace("'", "''")
                return f"step.tags.\"{key}\" {comparison} '{quoted}'"
            case "time", (comparison, moment):
                # TensorZero knows an inference's time to the second
                return f"date_trunc('second', step.started_at) {comparison} '{moment}'::timestamptz"
            case "not", _:
                return f"not ({self.children[0].ours()})"
        return "(" + f" {self.kind} ".join(child.ours() for child in self.children) + ")"


def a_filter(lot: random.Random, depth: int) -> Filter:
    kinds = ["float", "float", "boolean", "tag", "time", *(["demonstration"] if lot.random() < 0.2 else [])]
    match lot.choice(["and", "or", "not"] if depth and lot.random() < 0.7 else kinds):
        case "float":
            name = lot.choice(("score", "step_score"))
            return Filter("float", (name, lot.choice(COMPARISONS), lot.choice(BOUNDS)))
        case "boolean":
            return Filter("boolean", (lot.choice(("won", "step_ok")), lot.random() < 0.5))
        case "demonstration":
            return Filter("demonstration", (lot.random() < 0.5,))
        case "tag":
            key = lot.choice(sorted(TAGS))
            return Filter("tag", (key, lot.choice(("=", "!=")), lot.choice((*TAGS[key], "no such value"))))
        case "time":
            second = BASE_MS // 1000 + lot.randrange(N_EPISODES * 60)
            moment = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return Filter("time", (lot.choice(COMPARISONS), moment))
        case "not":
            child = a_filter(lot, depth - 1)
            if child.kind in ("float", "boolean"):
                child = Filter("and", (), (child,))  # see test_the_negation_of_one_comparison…
            return Filter("not", (), (child,))
        case kind:
            return Filter(kind, (), tuple(a_filter(lot, depth - 1) for _ in range(lot.randint(1, 3))))


# -- the same answer -----------------------------------------------------------------------------------------


@pytest.mark.timeout(900)  # 200 take half a minute on a machine that has nothing else to do
@pytest.mark.parametrize("n_filters", [8, pytest.param(200, marks=pytest.mark.full)])
def test_random_filters_select_what_tensorzero_lists(world: World, n_filters: int) -> None:
    log(world.rows, 11)
    lot, sizes = random.Random(20_261_121), []
    for _ in range(n_filters):
        tree = a_filter(lot, 3)
        options = {
            "function_name": lot.choice((None, "act", "talk")),
            "variant_name": lot.choice((None, "a")),
        }
        expected = theirs(world, tree, **options)
        asked = {
            "functions": tuple(filter(None, [options["function_name"]])),
            "variants": tuple(filter(None, [options["variant_name"]])),
        }
        found = ours(world, tree.ours(), **asked)
        assert found == expected, f"{tree.ours()} with {asked}: {found ^ expected}"
        sizes.append(len(found))
    assert sum(size > 0 for size in sizes) > n_filters / 4
    assert len(set(sizes)) > n_filters / 7


def test_without_a_filter_both_take_everything(world: World, client: Any) -> None:
    log(world.rows, 12)
    everything = theirs(world, None)
    assert ours(world, None) == everything
    assert len(everything) == client.command(f"SELECT count() FROM ({STEPS})")


# -- where TensorZero's answer is another --------------------------------------------------------------------


STEPS = "SELECT id, episode_id FROM JsonInference UNION ALL SELECT id, episode_id FROM ChatInference"


def targets(client: Any, name: str) -> set[str]:
    """The inferences that a metric was measured on, itself or its episode."""
    table = f"{METRICS[name][0].title()}MetricFeedback"
    measured = f"(SELECT target_id FROM {table} WHERE metric_name = '{name}')"
    sql = f"SELECT id FROM ({STEPS}) WHERE id IN {measured} OR episode_id IN {measured}"
    return {str(row[0]) for row in client.query(sql).result_rows}


@pytest.mark.full
@pytest.mark.parametrize(
    "leaf",
    [
        Filter("float", ("score", ">", 0.3)),
        pytest.param(Filter("boolean", ("step_ok", False)), marks=pytest.mark.full),
        pytest.param(Filter("float", ("step_score", "<=", 0.3)), marks=pytest.mark.full),
        pytest.param(Filter("boolean", ("won", True)), marks=pytest.mark.full),
    ],
)
def test_the_negation_of_one_comparison_brings_what_was_not_measured(
    world: World, client: Any, leaf: Filter
) -> None:
    """TensorZero does so unless the comparison stands directly below `not`: then it leaves those out."""
    log(world.rows, 13)
    bare, wrapped = Filter("not", (), (leaf,)), Filter("not", (), (Filter("and", (), (leaf,)),))
    assert ours(world, bare.ours()) == ours(world, wrapped.ours()) == theirs(world, wrapped)
    assert ours(world, bare.ours()) - theirs(world, bare) == theirs(world, None) - targets(
        client, leaf.values[0]
    )
    assert theirs(world, bare) < ours(world, bare.ours())


def test_of_two_scores_within_a_second_the_later_counts(world: World) -> None:
    """TensorZero goes by a time in whole seconds, so that the earlier may win."""
    rows = world.rows
    better, worse = [], []
    for number in range(40):
        at = BASE_MS + number * 60_000
        for first, second, kept in ((0.0, 1.0, better), (1.0, 0.0, worse)):
            episode_id = rows.id(at_ms=at)
            kept.append(step(rows, episode_id, at, function="act", variant="a", tags={}))
            metric(rows, "score", episode_id, first, at + 5000)
            metric(rows, "score", episode_id, second, at + 5400)
    above = Filter("float", ("score", ">", 0.5))
    assert ours(world, above.ours()) == set(better)
    assert theirs(world, above) != set(better)


@pytest.mark.full
@pytest.mark.parametrize("value", daily([0.7, 0.9, 0.1], 1))
def test_a_value_passes_a_bound_that_is_written_the_same(world: World, value: float) -> None:
    """TensorZero compares the 32-bit value, widened, with the 64-bit bound: 0.7 is then below 0.7."""
    episode_id = world.rows.id(at_ms=BASE_MS)
    made = step(world.rows, episode_id, BASE_MS, function="act", variant="a", tags={})
    metric(world.rows, "score", episode_id, value, BASE_MS + 5000)
    equal, least, most = (Filter("float", ("score", comparison, value)) for comparison in ("=", ">=", "<="))
    for each in (equal, least, most):
        assert ours(world, each.ours()) == {made}
    assert theirs(world, equal) == set()
    assert len(theirs(world, least)) + len(theirs(world, most)) == 1


def test_a_time_is_compared_in_milliseconds(world: World) -> None:
    """TensorZero keeps whole seconds: what began within a second did not begin after its start."""
    episode_id = world.rows.id(at_ms=BASE_MS)
    made = step(world.rows, episode_id, BASE_MS + 400, function="act", variant="a", tags={})
    moment = datetime.fromtimestamp(BASE_MS // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert ours(world, f"step.started_at > '{moment}'::timestamptz") == {made}
    assert theirs(world, Filter("time", (">", moment))) == set()
