"""`trajkit evaluate`, as a user types it: through the real gateway, and with models in this process."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.jobs import a_job
from tests.rollouts.loopback import Reply, said, serve
from tests.tiny import make_tiny
from trajkit._core.settings import remembered
from trajkit.cli.main import run
from trajkit.engines.engine import Engine
from trajkit.rollouts.options import Options
from trajkit.rollouts.session import prepare
from trajkit.rollouts.session import run as play
from trajkit.schema import Episode, LineageEntry, Transition, message
from trajkit.stack.gateway_config import prepare_config
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes

RECIPE = Path(__file__).parents[2] / "recipes" / "babyai"
SHORT = ("--task", "goto", "--max-steps", "2")
PROMPTS = ("--config", "babyai/tensorzero.toml", "--template-variant", "history_and_reasoning")
GO = Reply(said('{"thinking": "", "action": "go forward"}'))
TWICE = ("--variants", "base=sample:tiny-base,again=sample:tiny-base")

Answers = Callable[[dict[str, Any], int], Reply]


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    """A working folder with the recipe's configuration, and no gateway."""
    shutil.copytree(RECIPE, "babyai")
    return folder


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    """What `trajkit evaluate babyai … --json` prints."""
    capsys.readouterr()
    assert run(["evaluate", "babyai", *arguments, "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def estimate(document: dict[str, Any], variant: str, metric: str) -> dict[str, Any]:
    (group,) = (each for each in document["groups"] if each["variant"] == variant)
    (found,) = (each for each in group["estimates"] if (each["metric"], each["task"]) == (metric, None))
    assert isinstance(found, dict)
    return found


# -- through the gateway ----------------------------------------------------------------------------------


def test_variants_play_the_same_worlds_marked_as_evaluation(
    in_stack_folder: Path, ask: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--variants", "baseline,history", "--seeds", "200:203", *SHORT)
    document = evaluated(capsys, *command, "--decoding", "temperature=0.25", "-o", "stores/first")
    assert [group["variant"] for group in document["groups"]] == ["baseline", "history"]
    assert [group["n_missing"] for group in document["groups"]] == [0, 0]
    player = "agent (rule-player-not-a-language-model)"
    assert document["evaluation"]["variants"] == {"baseline": player, "history": player}
    assert {each["n_pairs"] for each in document["comparisons"]} == {3}

    episodes = list(open_dataset("stores/first"))
    assert len(episodes) == 6
    assert {(one.task, one.seed) for one in episodes} == {("goto", 200), ("goto", 201), ("goto", 202)}
    assert {one.purpose for one in episodes} == {"eval"}
    assert {one.tags["trajkit.decoding"] for one in episodes} == {"temperature=0.25"}
    assert remembered("last_store") == {"path": str(in_stack_folder / "stores" / "first")}
    manifest = open_store("stores/first").manifest
    assert manifest.source["evaluation"] == document["evaluation"]

    of_run = f"tags['trajkit.run'] = '{document['run']}'"
    for table in ("JsonInference", "FloatMetricFeedback"):
        purposes = ask(f"SELECT DISTINCT tags['trajkit.purpose'] FROM tensorzero.{table} WHERE {of_run}")
        assert purposes.split() == ["eval"]
    drawn = ask(
        "SELECT DISTINCT JSONExtractFloat(inference_params, 'chat_completion', 'temperature') "
        f"FROM tensorzero.JsonInference WHERE {of_run}"
    )
    assert drawn.split() == ["0.25"]
    sent = ask(
        "SELECT count(), countIf(JSONExtractFloat(raw_request, 'temperature') = 0.25) "
        "FROM tensorzero.ModelInference "
        f"WHERE inference_id IN (SELECT id FROM tensorzero.JsonInference WHERE {of_run})"
    )
    n, n_drawn = map(int, sent.split())
    assert n == n_drawn == sum(one.n_steps for one in episodes)

    assert evaluated(capsys, *command, "--decoding", "temperature=0.25", "-o", "stores/first") == document


@pytest.mark.full
@pytest.mark.usefixtures("in_stack_folder")
def test_processes_that_share_a_database_play_what_one_plays(capsys: pytest.CaptureFixture[str]) -> None:
    command = ("--variants", "baseline,history", "--seeds", "210:214", *SHORT)
    alone = evaluated(capsys, *command, "-o", "stores/alone")
    shared = evaluated(capsys, *command, "-o", "stores/shared", "--new-run", "--workers", "2")
    assert shared["groups"] == alone["groups"]
    assert shared["comparisons"] == alone["comparisons"]
    assert [each.n_steps for each in open_dataset("stores/shared")]
    prompts = [step.messages for each in open_dataset("stores/shared") for step in each.steps]
    assert None not in prompts


@pytest.mark.usefixtures("in_stack_folder")
def test_the_table_has_a_row_per_variant_and_the_difference_to_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["evaluate", "babyai", "--variants", "baseline,history", "--seeds", "200:202", *SHORT]) == 0
    printed = capsys.readouterr()
    groups, differences = printed.out.split("\n\n")
    assert groups.split("\n")[0].split("  ")[0] == "variant"
    assert [line.split()[:2] for line in groups.splitlines()[2:]] == [["baseline", "2"], ["history", "2"]]
    rows = [line.split()[:3] for line in differences.splitlines()[2:]]
    assert rows == [["history", "baseline", name] for name in ("success", "return", "length")]
    assert "too few pairs for an interval: 2, not 10" in printed.err
    assert "seeds 200:202 are not all reserved: `trajkit reserve babyai --seeds 200:202`" in printed.err
    (store,) = Path("stores").glob("evaluation-*")
    assert f"{store}  4 episodes" in printed.err


@pytest.mark.usefixtures("in_stack_folder")
@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["baseline,histry"], "no variant 'histry' in the function 'act'", "nearest: history"),
        (["baseline,baseline"], "'baseline' is compared twice", ""),
        (["baseline,"], "'baseline,' has an empty name", ""),
        (["a="], "'a=' has an empty name", ""),
        (["a=b", "--through", "gateway"], "a=b names a model", "--through process"),
        (["baseline", "--template-variant", "history"], "--template-variant is for models", ""),
        (["baseline", "--policy-set", "temperature=1"], "--policy-set is for models", ""),
        (["baseline", "--decoding", "hot"], "'hot' is not a decoding", "greedy"),
        (["baseline", "--through", "process"], "the model agent (rule-player-not-a-language-model) of", ""),
        (["histry", "--through", "process"], "no variant 'histry'", "nearest: history"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_code_2(
    arguments: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "babyai", "--seeds", "200:202", "--variants", *arguments]) == 2
    printed = capsys.readouterr()
    assert (message in printed.err, hint in printed.err, printed.out) == (True, True, ""), printed.err


@pytest.fixture
def own_model(in_stack_folder: Path, tmp_path: Path) -> Iterator[Callable[[Answers], list[str]]]:
    """Arguments that name a configuration whose model answers as a test says."""
    with contextlib.ExitStack() as stack:

        def start(answer: Answers) -> list[str]:
            address = stack.enter_context(serve(answer)).url.removesuffix("/v1")
            return [
                "--config",
                str(prepare_config(RECIPE / "tensorzero.toml", tmp_path / "config", model_url=address)),
            ]

        yield start


@pytest.mark.full
def test_a_server_that_dies_in_the_middle_costs_no_episode_and_doubles_none(
    own_model: Callable[[Answers], list[str]],
    ask: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    lives_until = [7]

    def answer(body: dict[str, Any], n: int) -> Reply:
        return GO if n < lives_until[0] else Reply(None)

    command = ["--variants", "baseline,history", "--seeds", "200:206", "--task", "goto", "--max-steps", "2"]
    command += [*own_model(answer), "--retries", "0", "--concurrency", "2", "-o", "stores/died"]
    assert run(["evaluate", "babyai", *command]) == 4
    printed = capsys.readouterr()
    assert "episodes in a row ended by connection" in printed.err
    assert (printed.out, Path("stores/died").exists()) == ("", False)

    lives_until[0] = 10_000
    document = evaluated(capsys, *command)
    assert [(group["n_episodes"], group["n_missing"]) for group in document["groups"]] == [(6, 0), (6, 0)]
    episodes = list(open_dataset("stores/died"))
    played = {((one.origin or {})["policy"], one.seed) for one in episodes}
    assert len(episodes) == len(played) == 12
    feedback = ask(
        "SELECT count(), uniqExact(target_id) FROM tensorzero.FloatMetricFeedback "
        f"WHERE metric_name = 'episode_return' AND tags['trajkit.run'] = '{document['run']}'"
    )
    assert feedback.split() == ["12", "12"]


@pytest.mark.full
def test_a_model_that_answers_only_garbage_finishes_and_is_reported_as_such(
    own_model: Callable[[Answers], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    config = own_model(lambda body, n: Reply(said("I would rather not.")))
    command = ("--variants", "baseline,history", "--seeds", "200:203", *SHORT, *config)
    assert run(["evaluate", "babyai", *command, "-o", "stores/garbage"]) == 0
    printed = capsys.readouterr()
    for variant in ("baseline", "history"):
        assert f"{variant}: 100% of 6 answers named no action" in printed.err
    document = evaluated(capsys, *command, "-o", "stores/garbage")
    assert [(each["n_judged"], each["n_invalid"]) for each in document["groups"]] == [(6, 6), (6, 6)]
    success = estimate(document, "baseline", "success")
    # none of 3: Wilson's upper bound is z²/(n + z²) with z = 1.96
    assert (success["value"], success["low"]) == (0.0, 0.0)
    assert success["high"] == pytest.approx(1.959964**2 / (3 + 1.959964**2), abs=1e-6)


# -- in this process --------------------------------------------------------------------------------------


def test_models_of_this_machine_are_compared_without_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    command = (*TWICE, *PROMPTS, *SHORT, "--seeds", "200:201")
    document = evaluated(capsys, *command, "--decoding", "greedy", "--decoding", "temperature=1", "-o", "out")
    groups = [(group["variant"], group["decoding"]) for group in document["groups"]]
    ways = ("greedy", "temperature=1")
    assert groups == [(variant, way) for way in ways for variant in ("base", "again")]
    assert document["evaluation"]["variants"] == {"base": "sample:tiny-base", "again": "sample:tiny-base"}
    # the same model on the same worlds with the same draws: nothing may differ
    found = [each for each in document["comparisons"] if each["metric"] == "n_output_tokens"]
    assert [(each["baseline"], each["candidate"], each["difference"]) for each in found] == [
        (f"base, {way}", f"again, {way}", 0.0) for way in ways
    ]
    episodes = list(open_dataset("out"))
    assert len(episodes) == 4
    step = episodes[0].steps[0]
    assert (step.function_name, step.model_name) == ("act", "sample:tiny-base")
    assert step.messages is not None
    assert [said.role for said in step.messages] == ["system", "user"]
    assert (episodes[0].origin or {})["mission"] in str(step.messages[0])


def learned(path: str, seeds: range, *, env: str = "babyai", lineage: Sequence[LineageEntry] = ()) -> Path:
    """A store of episodes that somebody learns from."""
    step = Transition(
        step_index=0,
        messages=(message("user", "now?"),),
        completion=message("assistant", "go"),
        function_name="act",
        variant_name="history_and_reasoning",
    )
    episodes = [
        Episode(episode_id=f"e{seed}", source="test", env_id=env, task="goto", seed=seed, steps=(step,))
        for seed in seeds
    ]
    write_episodes(Path(path), episodes, kind="test", lineage=lineage)
    return Path(path)


def tuned(seeds: range, *, lineage: Sequence[LineageEntry] = (), **fields: Any) -> None:
    """A job `tiny` that has learned these seeds, whose model is the sample's."""
    a_job(learned("good", seeds, lineage=lineage), **fields)
    shutil.rmtree("runs/tiny/model")
    shutil.copytree(Path(__file__).parents[2] / "data" / "tiny-base", "runs/tiny/model")


def test_seeds_that_a_model_has_learned_are_refused_unless_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned(range(198, 203))
    command = ["--variants", "base=sample:tiny-base,tuned=tiny", "--config", "babyai/tensorzero.toml", *SHORT]
    assert run(["evaluate", "babyai", *command, "--seeds", "200:204"]) == 2
    refused = "not held out: job tiny (tuned) learned seed 200 of goto and 2 more"
    assert refused in capsys.readouterr().err
    assert not Path(".trajkit/runs").exists()

    document = evaluated(capsys, *command, "--seeds", "200:202", "--allow-leak", "-o", "leaky")
    assert document["evaluation"]["leaks"] == ["job tiny (tuned) learned seed 200 of goto and 1 more"]
    assert open_store("leaky").manifest.source["evaluation"] == document["evaluation"]

    assert (
        run(["evaluate", "babyai", *command, "--seeds", "200:202", "--allow-leak", "-o", "leaky", "--quiet"])
        == 0
    )
    printed = capsys.readouterr()
    assert (
        printed.out.splitlines()[-1] == "not held out: job tiny (tuned) learned seed 200 of goto and 1 more"
    )
    assert printed.err == ""

    document = evaluated(capsys, *command, "--seeds", "203:204", "-o", "held_out")
    assert document["evaluation"]["leaks"] == []
    # both with the prompts that the tuned one has learned
    prompts = {
        (one.origin or {})["policy"]: one.steps[0].messages
        for one in open_dataset("held_out")
        if one.seed == 203
    }
    assert prompts["base"] == prompts["tuned"]


def test_the_same_room_under_another_task_is_refused_unless_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuned(range(198, 203), function=None, variants=())  # of goto
    command = ["evaluate", "babyai", "--variants", "tuned=tiny", "--max-steps", "4", "--dry-run"]
    refused = "job tiny (tuned) learned the same room in goto as seed 200 of pickup and 2 more"
    assert run([*command, "--task", "pickup", "--seeds", "200:204"]) == 2
    assert f"not held out: {refused}" in capsys.readouterr().err
    assert run([*command, "--task", "pickup", "--seeds", "200:204", "--allow-leak"]) == 0
    assert f"not held out (--allow-leak): {refused}" in capsys.readouterr().err
    assert run([*command, "--task", "open", "--seeds", "200:204"]) == 0  # another room of the same seed


LIGHTHOUSE = """
class Lighthouse:
    def reset(self, seed):
        return "Light the lamp.", "Dusk."

    def step(self, text):
        return "Night.", float(text == "light"), text == "light", False

    def legal_actions(self):
        return ("light", "wait")
"""


def test_the_worlds_that_a_sample_model_learned_are_not_held_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["evaluate", "babyai", *TWICE, *SHORT, "--seeds"]
    assert run([*asked, "3000000:3000003"]) == 2
    refused = "sample:tiny-base (base) learned seed 3000000 of goto and 2 more"
    assert f"not held out: {refused}" in capsys.readouterr().err
    assert run([*asked, "3000000:3000003", "--allow-leak", "--dry-run"]) == 0
    assert refused in "".join(capsys.readouterr())
    assert run([*asked, "3000090:3000093", "--dry-run"]) == 0
    assert "learned" not in "".join(capsys.readouterr())


def test_prompts_of_another_environment_are_not_played(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    Path("lighthouse.py").write_text(LIGHTHOUSE, encoding="utf-8")
    Path("trajkit.toml").write_text('config = "babyai/tensorzero.toml"\n', encoding="utf-8")
    command = ["evaluate", "lighthouse:Lighthouse", "--variants", "base=sample:tiny-base", "--seeds", "0:1"]
    # that configuration was not named: the model gets the prompt that fits any environment
    assert run([*command, "--max-steps", "1", "-o", "out", "--quiet"]) == 0
    ((step,),) = (episode.steps for episode in open_dataset("out"))
    assert (step.function_name, step.action_valid) == (None, True)
    assert "- light" in str(step.messages)
    for asked in (["--template-variant", "baseline"], ["--config", str(RECIPE / "tensorzero.toml")]):
        capsys.readouterr()
        assert run([*command, *asked]) == 2
        error = capsys.readouterr().err
        assert "is not for lighthouse:Lighthouse: it is about 'turn left'" in error
    tools = str(RECIPE.parent / "babyai_tools" / "tensorzero.toml")
    assert run([*command, "--config", tools]) == 2
    assert "babyai_tools/tensorzero.toml is not for lighthouse" in capsys.readouterr().err


@pytest.mark.full
def test_who_learned_no_functions_prompts_plays_without(capsys: pytest.CaptureFixture[str]) -> None:
    tuned(range(5), function=None, variants=())
    Path("trajkit.toml").write_text('config = "babyai/tensorzero.toml"\n', encoding="utf-8")
    command = ["--variants", "base=sample:tiny-base,tuned=tiny", *SHORT, "--seeds", "200:201", "-o", "out"]
    evaluated(capsys, *command)
    assert {step.function_name for one in open_dataset("out") for step in one.steps} == {None}


@pytest.mark.full
@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("baseline", "tuned learned the prompts of history_and_reasoning, and gets those of baseline"),
        ("history_and_reasoning", None),
    ],
)
def test_a_model_that_is_given_other_prompts_than_it_learned_is_named(
    capsys: pytest.CaptureFixture[str], template: str, said: str | None
) -> None:
    tuned(range(5))
    prompts = ("--config", "babyai/tensorzero.toml", "--template-variant", template)
    command = ("--variants", "base=sample:tiny-base,tuned=tiny", *prompts, *SHORT, "--seeds", "200:201")
    assert run(["evaluate", "babyai", *command, "--dry-run"]) == 0
    told = capsys.readouterr().err
    assert (f"warning: {said}" in told) if said else "learned the prompts" not in told
    if said:
        document = evaluated(capsys, *command, "-o", "out")
        assert document["evaluation"]["other_prompts"] == [said]


def played_by(policy: str, **settings: str) -> LineageEntry:
    """What a store says of a rollout of somebody's own agent."""
    return LineageEntry(
        verb="rollout",
        arguments={"policy": policy, **({"policy_settings": dict(settings)} if settings else {})},
        n_episodes_in=5,
        n_episodes_out=5,
        n_steps_in=5,
        n_steps_out=5,
        done_at=datetime(2026, 11, 24, tzinfo=UTC),
        trajkit_version="0.1.0",
    )


def test_a_model_that_learned_the_prompts_of_an_agent_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    tuned(
        range(5), function=None, variants=("my_pkg.agent:Agent",), lineage=(played_by("my_pkg.agent:Agent"),)
    )
    command = ["--variants", "base=sample:tiny-base,tuned=tiny", *SHORT, "--seeds", "200:201", "--dry-run"]
    assert run(["evaluate", "babyai", *command]) == 0
    said = capsys.readouterr().err
    assert "tuned learned the prompts of my_pkg.agent:Agent, and gets trajkit's own" in said


AGENT = """
import json

class Agent:
    def __init__(self, style: str = "short", model: str | None = None, api_key: str = "") -> None:
        self.style, self.model = style, model

    async def act(self, turn):
        talk = [{"role": "user", "content": f"{self.style}: {turn.observation}"}]
        schema = {
            "type": "object",
            "properties": {"action": {"enum": list(turn.legal_actions)}},
            "required": ["action"],
            "additionalProperties": False,
        }
        answer = await turn.chat(
            talk,
            model=self.model,
            temperature=1,
            max_tokens=24,
            response_format={"type": "json_schema", "json_schema": {"name": "act", "schema": schema}},
        )
        try:
            return json.loads(answer.choices[0].message.content)["action"]
        except ValueError:  # cut off
            return None

def silent(observation):
    return "go forward"
"""


@pytest.fixture
def agent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An agent of one's own, which asks through its turn."""
    monkeypatch.syspath_prepend(str(folder))
    name = f"own_agent_{folder.name.replace('-', '_')}"
    Path(f"{name}.py").write_text(AGENT, encoding="utf-8")
    return f"{name}:Agent"


@pytest.mark.full
def test_an_agent_plays_with_each_model_and_its_own_prompts(
    agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(range(5), function=None, variants=(agent,), lineage=(played_by(agent),))
    control = make_tiny(Path("control"))
    models = f"before=sample:tiny-base,tuned=tiny,control={control}"
    command = ("--policy", agent, "--variants", models, *SHORT, "--seeds", "200:202", "-o", "out")
    document = evaluated(capsys, *command, "--decoding", "greedy")
    assert [group["variant"] for group in document["groups"]] == ["before", "tuned", "control"]
    assert {each["n_pairs"] for each in document["comparisons"]} == {2}
    assert document["evaluation"]["variants"] == {
        "before": "sample:tiny-base",
        "tuned": "tiny",
        "control": control,
    }
    # the first two are the same model; the third reads bytes, so it counts other tokens in the same prompt
    before, same, other = (
        estimate(document, name, "n_input_tokens")["value"] for name in ("before", "tuned", "control")
    )
    assert before == same < other
    first = {(one.origin or {})["policy"]: one.steps[0] for one in open_dataset("out") if one.seed == 200}
    assert {step.model_name for step in first.values()} == {"sample:tiny-base", "tiny", control}
    assert len({str(step.messages) for step in first.values()}) == 1
    assert "short: " in str(first["before"].messages)
    assert {step.extra["request"]["temperature"] for step in first.values()} == {0.0}
    assert evaluated(capsys, *command, "--decoding", "greedy") == document


@pytest.mark.full
@pytest.mark.parametrize(
    ("learned_from", "said"),
    [
        ((), None),
        (("--policy-set", "style=long"), "with style=long"),
        (("--policy-set", "api_key=sk-own-1234"), "with api_key=***"),
    ],
)
def test_a_model_that_learned_other_prompts_than_the_agents_is_named(
    agent: str, learned_from: tuple[str, ...], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(range(5), function=None, variants=(agent,), lineage=(played_by(agent),))
    command = [
        "evaluate",
        "babyai",
        "--policy",
        agent,
        "--variants",
        "base=sample:tiny-base,tuned=tiny",
        *SHORT,
    ]
    assert run([*command, "--seeds", "200:201", "--dry-run", *learned_from]) == 0
    told = capsys.readouterr().err
    warning = f"warning: tuned learned the prompts of {agent}, and gets those of {agent} {said}"
    assert (warning in told) if said else "learned the prompts" not in told
    assert "sk-own-1234" not in told
    assert run([*command, "--seeds", "4:9", "--dry-run"]) == 2
    assert "not held out: job tiny (tuned) learned seed 4 of goto" in capsys.readouterr().err


def test_an_agent_asks_models_at_a_server_by_their_names_or_their_jobs(
    agent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    a_job(learned("good", range(5)), job_id="hosted", model="ft:mine")
    with serve(lambda body, n: Reply(said('{"action": "drop"}'))) as server:
        command = ["evaluate", "babyai", "--policy", agent, "--variants", "base=gpt,tuned=hosted", *SHORT]
        command += ["--model-url", server.url]
        assert run([*command, "--seeds", "200:201"]) == 0
        assert {each.body["model"] for each in server.asked} == {"gpt", "ft:mine"}
        told = capsys.readouterr().err
        assert f"tuned learned the prompts of history_and_reasoning, and gets those of {agent}" in told
        assert run([*command, "--seeds", "2:3"]) == 2
        assert "job hosted (tuned) learned seed 2 of goto" in capsys.readouterr().err


@pytest.mark.full
def test_an_agent_in_shards_is_measured_as_in_one_process(
    agent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(Engine, "n_shards", 3)  # with one worker they run in this process
    with serve(lambda body, n: Reply(said('{"action": "drop"}'))) as server:
        command = ["--policy", agent, "--variants", "base=gpt,tuned=gpt-2", *SHORT, "--seeds", "200:203"]
        command += ["--model-url", server.url]
        alone = evaluated(capsys, *command, "-o", "alone")
        n_asked = len(server.asked)
        shared = evaluated(capsys, *command, "-o", "shared", "--new-run", "--workers", "1")
        assert len(server.asked) == 2 * n_asked
        assert evaluated(capsys, *command, "-o", "shared", "--workers", "1") == shared
        assert len(server.asked) == 2 * n_asked
    assert shared["groups"] == alone["groups"]
    for one, other in zip(
        open_store("alone").manifest.lineage, open_store("shared").manifest.lineage, strict=True
    ):
        times = {"done_at": None, "arguments": {**one.arguments, "run": None}}
        other = other.model_copy(update={**times, "arguments": {**other.arguments, "run": None}})
        assert other == one.model_copy(update=times)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variants", "a"], "no model for 'a'"),
        (["--variants", "a=sample:tiny-base", "--template-variant", "history"], "an agent has its own"),
        (["--variants", "a=sample:tiny-base", "--through", "gateway"], "an agent has its own"),
        (["--variants", "a=sample:tiny-base", "--policy-set", "hat=1"], "no setting 'hat'"),
        (
            ["--variants", "a=sample:tiny-base", "--policy-set", "model=gpt"],
            "the agent calls the model 'gpt', but 'sample:tiny-base' is evaluated",
        ),
        (["--variants", "a=x", "--policy", "expert"], "--policy expert is not an agent of your own"),
    ],
)
def test_an_agent_whose_models_cannot_be_measured_is_refused_with_code_2(
    agent: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "babyai", "--policy", agent, *SHORT, "--seeds", "200:201", *arguments]
    assert run(command) == 2
    assert message in capsys.readouterr().err


def test_an_agent_that_asks_no_model_is_told_of(agent: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--policy", agent.replace("Agent", "silent"), *TWICE, *SHORT, "--seeds", "200:201"]
    assert run(["evaluate", "babyai", *command]) == 0
    assert "it plays the same with every model" in capsys.readouterr().err


def test_what_a_job_of_another_folder_has_learned_is_known_too(capsys: pytest.CaptureFixture[str]) -> None:
    tuned(range(198, 203))
    Path("runs").rename("others")
    command = ["--variants", "tuned=others/tiny", "--config", "babyai/tensorzero.toml", *SHORT]
    assert run(["evaluate", "babyai", *command, "--seeds", "200:204"]) == 2
    assert "not held out: job tiny (tuned) learned seed 200 of goto and 2 more" in capsys.readouterr().err


def test_what_chose_a_checkpoint_is_not_held_out(capsys: pytest.CaptureFixture[str]) -> None:
    played = {"seeds": "300:310", "env": "babyai", "tasks": ["goto"]}
    tuned(range(5), recipe={"play": played})
    command = ["--variants", "tuned=tiny", "--config", "babyai/tensorzero.toml", *SHORT]
    assert run(["evaluate", "babyai", *command, "--seeds", "305:320"]) == 2
    assert "job tiny (tuned) was chosen by playing seed 305 of goto and 4 more" in capsys.readouterr().err


@pytest.mark.full
def test_a_model_is_found_by_the_name_of_a_registered_variant(capsys: pytest.CaptureFixture[str]) -> None:
    tuned(range(5))
    assert run(["register", "tiny", "--config", "babyai/tensorzero.toml", "--variant", "mine", "--yes"]) == 0
    command = ("--variants", "mine", "--config", "babyai/tensorzero.toml", "--through", "process", *SHORT)
    document = evaluated(capsys, *command, "--seeds", "200:201", "-o", "out")
    assert document["evaluation"]["variants"] == {"mine": "tiny"}
    assert run(["evaluate", "babyai", *command, "--seeds", "2:9"]) == 2
    assert "job tiny (mine) learned seed 2 of goto and 2 more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a=sample:none"], "there is no sample model 'none'"),
        (["a=no_such_job"], "no job and no folder 'no_such_job'"),
        (["a=sample:tiny-base", "--config", "babyai/tensorzero.toml"], "no prompts chosen for a"),
        (["a=sample:tiny-base", "--template-variant", "history"], "no configuration for 'history'"),
        (["a=sample:tiny-base", *PROMPTS[:2], "--template-variant", "hist"], "no variant 'hist'"),
        (["a=sample:tiny-base", "--function", "act"], "no configuration for 'act'"),
        (["a=sample:tiny-base", "--policy-set", "hat=1"], "the policy local has no setting 'hat'"),
        (["a", "--through", "process"], "it is not known which model 'a' is"),
    ],
)
def test_a_model_that_cannot_play_is_refused_with_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "babyai", *SHORT, "--seeds", "200:202", "--variants", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_dry_run_says_what_would_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    document = evaluated(capsys, *TWICE, *PROMPTS, *SHORT, "--seeds", "200:206", "--dry-run")
    assert (document["n_episodes"], document["n_done"], document["models"]) == (12, 0, [])
    assert not Path("stores").exists()


def test_episodes_for_training_are_no_evaluation() -> None:
    from trajkit.errors import RequestError
    from trajkit.evaluation.evaluation import evaluation

    options = {"env_id": "babyai", "policy": "expert", "tasks": ("goto",), "seeds": "0:2"}
    with pytest.raises(RequestError, match="played for eval, not for train"):
        evaluation(prepare(Options.model_validate(options)))
    made = evaluation(prepare(Options.model_validate({**options, "purpose": "eval", "store": "out"})))
    play(made.session, on_played=lambda played: None)
    assert open_store("out").manifest.source["evaluation"] == made.session.remarks["evaluation"]
