"""`trajkit evaluate --prompts`: models answer logged prompts, and a function of the user scores them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.jobs import a_job
from tests.rollouts.loopback import Reply, Server, refused, said, serve
from trajkit.cli.main import run
from trajkit.schema import Episode, Message, ToolCallBlock, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.reader import open_store
from trajkit.store.writer import write_episodes

TOOL = {"type": "function", "name": "find", "description": "", "parameters": {"type": "object"}}
SCORERS = """
def is_kind(prompt, answer, step):
    assert step.completion.text == "logged"
    return "please" in answer.text

def length(step):
    return float(len(step.completion.text))

def if_asked(prompt, answer, step):
    return None if prompt[-1].text.endswith("0?") else 1.0

def breaks(prompt, answer, step):
    raise ValueError("no judge")
"""


def chat(number: int, n_customers: int = 14) -> Episode:
    asked = (message("system", "Be kind."), message("user", f"question {number}?"))
    call = Message(role="assistant", content=(ToolCallBlock(id="c", name="find", arguments="{}"),))
    steps = (
        Transition(step_index=0, messages=asked, completion=call, tools=(TOOL,)),
        Transition(
            step_index=1,
            n_prompt_kept=3,
            messages=(message("user", f"and {number}?"),),
            completion=message("assistant", "logged"),
            tools=(TOOL,),
        ),
    )
    tags = {"customer": f"c{number % n_customers}"}
    return Episode(episode_id=f"chat-{number:02}", source="test", tags=tags, steps=steps)


@pytest.fixture(scope="module")
def held_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    goal = tmp_path_factory.mktemp("prompts") / "held-out"
    write_episodes(goal, [chat(number) for number in range(14)], kind="test")
    return goal


@pytest.fixture(autouse=True)
def _files(held_out: Path) -> None:
    Path("checks.py").write_text(SCORERS)
    shutil.copytree(held_out, "held-out")


def kind_only_if_tuned(body: dict[str, Any], n: int) -> Reply:
    is_first = body["messages"][-1]["content"] == "and 0?"
    return Reply(said("please wait" if body["model"] == "tuned-model" or is_first else "wait"))


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(kind_only_if_tuned) as running:
        yield running


def command(server: Server, *more: str, scorer: str = "is_kind", store: str = "held-out") -> list[str]:
    models = ["--variants", "before=base-model,tuned=tuned-model", "--model-url", server.url]
    return ["evaluate", "--prompts", store, "--scorer", f"checks.py:{scorer}", *models, *more]


@pytest.mark.full
def test_models_are_compared_on_the_same_prompts(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(server, "--json", "-o", "measured")) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["n_episodes"]) for one in document["groups"]] == [("before", 14), ("tuned", 14)]
    success = next(one for one in document["comparisons"] if one["metric"] == "success")
    assert (success["baseline_value"], success["candidate_value"]) == (pytest.approx(1 / 14), 1.0)
    assert (success["n_pairs"], success["n_baseline_only"], success["n_candidate_only"]) == (14, 0, 13)
    assert success["low"] > 0.6
    assert success["p_value"] < 0.001
    assert document["score"] == "is_kind"


def test_a_request_is_the_logged_prompt_with_its_tools_and_greedy(server: Server) -> None:
    assert run(command(server, "--policy-set", "max_tokens=9", "-o", "measured")) == 0
    bodies = [each.body for each in server.asked if each.body["messages"][-1]["content"] == "and 3?"]
    assert {body["model"] for body in bodies} == {"base-model", "tuned-model"}
    assert [one["role"] for one in bodies[0]["messages"]] == ["system", "user", "assistant", "user"]
    assert bodies[0]["messages"][2]["tool_calls"][0]["function"] == {"name": "find", "arguments": "{}"}
    assert bodies[0]["tools"][0]["function"]["name"] == "find"
    assert (bodies[0]["temperature"], bodies[0]["max_tokens"], "seed" in bodies[0]) == (0, 9, False)


@pytest.mark.full
def test_the_store_is_an_evaluation_that_report_reads(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(server, "-o", "measured")) == 0
    one = next(each for each in open_dataset("measured") if each.seed == 3 and each.steps[0].model_name)
    assert (one.purpose, one.tags["customer"], one.origin and one.origin["prompt"]) == (
        "eval",
        "c3",
        "chat-03:1",
    )
    assert [block.text for block in one.steps[0].messages or ()][-1] == "and 3?"
    capsys.readouterr()
    assert run(["report", "measured", "--require", "success.low > 0"]) == 0
    assert "0.071" in capsys.readouterr().out


@pytest.mark.full
def test_all_prompts_of_an_episode_count_once_together(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(server, "--steps", "all", "--json", scorer="length")) == 0
    document = json.loads(capsys.readouterr().out)
    found = next(one for one in document["comparisons"] if one["metric"] == "length")
    assert (found["n_pairs"], found["n_rooms"]) == (28, 14)
    assert document["n_prompts"] == 28


@pytest.mark.full
def test_few_groups_have_no_interval(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    write_episodes(Path("few"), [chat(number, n_customers=4) for number in range(20)], kind="test")
    assert run(command(server, "--by", "tags.customer", "--json", store="few")) == 0
    document = json.loads(capsys.readouterr().out)
    success = next(one for one in document["comparisons"] if one["metric"] == "success")
    assert (success["low"], success["p_value"], success["n_rooms"]) == (None, None, 4)
    assert success["note"] == "too few groups for an interval: 4, not 10"


@pytest.mark.full
def test_an_answer_without_a_score_counts_for_nothing(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(server, "--json", scorer="if_asked")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["n_unscored"] == 4  # questions 0 and 10, of two models
    assert next(one for one in document["comparisons"] if one["metric"] == "if_asked")["n_pairs"] == 12


def test_failures_are_counted_and_only_what_is_missing_is_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    is_broken = [True]

    def answer(body: dict[str, Any], n: int) -> Reply:
        if is_broken[0] and body["messages"][-1]["content"] in ("and 8?", "and 9?"):
            return Reply(refused("too long"), 400)
        return kind_only_if_tuned(body, n)

    with serve(answer) as server:
        assert run(command(server, "--json", "-o", "first")) == 1
        document = json.loads(capsys.readouterr().out)
        assert (document["n_answered"], sum(document["failures"].values())) == (24, 4)
        assert sum(one.outcome == "error" for one in open_dataset("first")) == 4
        is_broken[0], n_before = False, len(server.asked)
        assert run(command(server, "--json", "-o", "second")) == 0
        assert len(server.asked) - n_before == 4
        assert open_store("second").manifest.counts.n_episodes == 28


@pytest.mark.parametrize(
    ("learned", "words"),
    [
        (chat(3), "job hosted (tuned) learned chat-03:1"),
        (chat(3).model_copy(update={"episode_id": "copy"}), "learned the same prompt as chat-03:1"),
    ],
)
def test_prompts_that_a_model_learned_are_refused(
    server: Server, learned: Episode, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_episodes(Path("learned"), [learned], kind="test")
    a_job(Path("learned"), job_id="hosted", model="tuned-model")
    asked = command(server, "-o", "measured")
    asked[asked.index("before=base-model,tuned=tuned-model")] = "before=base-model,tuned=hosted"
    assert run(asked) == 2
    assert words in capsys.readouterr().err
    assert (server.asked, Path("measured").exists()) == ([], False)
    assert run([*asked, "--allow-leak"]) == 0
    assert "not held out: " in capsys.readouterr().out
    source: Any = open_store("measured").manifest.source["evaluation"]
    assert words in source["leaks"][0]


def test_a_dry_run_asks_nothing(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(server, "--dry-run", "--input-price", "1", "--output-price", "2")) == 0
    assert server.asked == []
    assert "28 requests" in capsys.readouterr().err


@pytest.mark.full
def test_a_limit_keeps_what_is_answered(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command(server, "--max-calls", "7", "--concurrency", "1", "-o", "some")) == 5
    assert "--max-calls is reached" in capsys.readouterr().err
    assert open_store("some").manifest.counts.n_episodes == 7


def test_the_same_function_scores_what_was_logged(capsys: pytest.CaptureFixture[str]) -> None:
    scoring = ["score", "held-out", "--with", "checks.py:if_asked", "--per", "step", "--name", "mark"]
    assert run([*scoring, "-o", "scored"]) == 0
    # both prompts of questions 0 and 10 end in `0?`
    assert "24 steps scored, mean 1; no score for 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda words: [*words, "--seeds", "0:3"], "--seeds is for an environment"),
        (lambda words: [words[0], "babyai", *words[1:]], "ENVIRONMENT is for an environment"),
        (
            lambda words: [word for word in words if "checks" not in word and word != "--scorer"],
            "--scorer my.py:fn",
        ),
        (
            lambda words: [word.replace("is_kind", "breaks") for word in words],
            "no judge",
        ),
        (lambda words: [word.replace("is_kind", "nothing") for word in words], "has no 'nothing'"),
        (lambda words: [*words, "--by", "tags.shop"], "no episode of"),
        (lambda words: [words[0], *words[3:]], "for logged prompts"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    server: Server,
    change: Callable[[list[str]], list[str]],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(change(command(server))) in (1, 2)
    assert words in capsys.readouterr().err
