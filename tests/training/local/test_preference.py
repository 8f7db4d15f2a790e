"""Pairs and judged answers become tokens, and a model that prefers the better ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.tiny import byte_tokenizer
from trajkit.curation.pair_file import Pairs, open_pairs
from trajkit.curation.preferences.pairs import pairs as pair_store
from trajkit.errors import DataError, RequestError
from trajkit.formats.tokens.tokenizer import ChatTemplate
from trajkit.models.generation.weights import old_names
from trajkit.schema import Episode, Transition, message
from trajkit.store.writer import write_episodes
from trajkit.training.job import JobStatus, Step
from trajkit.training.local.preferences.recipe import RECIPES, DpoRecipe, KtoRecipe
from trajkit.training.local.preferences.tokens import tokenise_preferences, verdicts_of
from trajkit.training.local.preferences.train import (
    PreferenceTrained,
    Rewards,
    collator,
    rows_of,
    train_preference,
)
from trajkit.training.local.prepare import LocalRequest, Prepared, prepare
from trajkit.training.local.running.launch import follow, start
from trajkit.training.local.tokens.tokenised import Limit
from trajkit.training.runs import Runs

GOOD, BAD = "go left", "go right"
QUICK = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "learning_rate": 1e-2}
ANY = Limit(2048, "")


def says(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


def preference(n: int, chosen: str = GOOD, rejected: str = BAD) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"turn {n} of the game: "}]
    return {"prompt": prompt, "chosen": says(chosen), "rejected": says(rejected)}


def judged(n: int, text: str, label: bool) -> dict[str, Any]:
    return {"prompt": preference(n)["prompt"], "completion": says(text), "label": label}


def written(
    folder: Path, tokenizer: str, rows: Iterable[dict[str, Any]], *, method: str, limit: Limit, name: str
) -> Path:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    goal = folder / f"{name}.arrow"
    tokenise_preferences(folder / f"{name}.jsonl", goal, ChatTemplate(tokenizer), method=method, limit=limit)
    return goal


@pytest.fixture
def tokens(tmp_path: Path, base: str) -> Callable[..., Path]:
    def write(*rows: dict[str, Any], method: str = "dpo", limit: Limit = ANY, by: str = "") -> Path:
        return written(tmp_path, by or base, rows, method=method, limit=limit, name="train")

    return write


def test_only_the_answers_are_learned_and_their_ends_are(tokens: Callable[..., Path], base: str) -> None:
    row = rows_of(tokens(preference(7)))[0]
    decoded = {name: ChatTemplate(base)._tokenizer.decode(ids) for name, ids in row.items()}
    assert decoded == {
        "prompt_ids": "turn 7 of the game: ",
        "chosen_ids": f"{GOOD}<|im_end|>",
        "rejected_ids": f"{BAD}<|im_end|>",
    }
    batch = collator("dpo", padding=0, compares=False)([row])
    learned = [ids[mask.bool()].tolist() for ids, mask in zip(*map(batch.get, _LEARNED), strict=True)]
    assert learned == [row["chosen_ids"], row["rejected_ids"]]


_LEARNED = ("input_ids", "completion_mask")


def test_the_prompt_of_an_unmarked_template_is_not_learned(
    tokens: Callable[..., Path], tmp_path: Path
) -> None:
    unmarked = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    plain = byte_tokenizer(tmp_path / "unmarked", unmarked)
    row = rows_of(tokens(preference(7), by=plain))[0]
    decode = ChatTemplate(plain)._tokenizer.decode
    assert decode(row["prompt_ids"]) == "<user>turn 7 of the game: <|im_end|><assistant>"
    assert decode(row["chosen_ids"]) == f"{GOOD}<|im_end|>"


def test_a_row_that_is_too_long_is_named_and_nothing_is_written(
    tokens: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"1 row is longer than 30 tokens: line 2: 121 tokens"):
        tokens(preference(1, "a", "b"), preference(2, "x" * 100, "b"), limit=Limit(30, ""))
    assert not (tmp_path / "train.arrow").exists()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
            "gives the completion no token",
        ),
        (
            "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ 'ok<|im_end|>' }}"
            "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
            "renders both completions alike",
        ),
        (
            "{{ messages[-1].content | length }}{% for m in messages %}{% if m.role == 'assistant' %}"
            "{% generation %}{{ m.content }}{{ '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content }}"
            "{% endif %}{% endfor %}",
            "renders another prompt before each completion",
        ),
    ],
)
def test_a_template_that_teaches_something_else_is_refused(
    tokens: Callable[..., Path], tmp_path: Path, template: str, message: str
) -> None:
    by = byte_tokenizer(tmp_path / "other", template)
    with pytest.raises((DataError, RequestError), match=message) as caught:
        tokens(preference(1, "go", "stay put"), by=by)
    assert "train.jsonl line 1" in caught.value.message


@pytest.mark.parametrize(("end", "n_endless"), [("<|im_end|>\n", 0), ("", 2)])
def test_an_end_that_a_template_does_not_mark_is_learned_and_one_that_is_missing_counted(
    tokens: Callable[..., Path], tmp_path: Path, end: str, n_endless: int
) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{{ END }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
    )
    by = byte_tokenizer(tmp_path / "other", template.replace("END", repr(end)))
    tokenizer, goal = ChatTemplate(by), tokens(preference(1), by=by)
    learned = tokenizer._tokenizer.decode(rows_of(goal)[0]["chosen_ids"])
    assert learned == GOOD + end.strip()
    rows = tmp_path / "train.jsonl"
    tally = tokenise_preferences(rows, tmp_path / "again.arrow", tokenizer, method="dpo", limit=ANY)
    assert tally.n_endless == n_endless


def test_a_tokenizer_of_another_model_is_refused(tokens: Callable[..., Path]) -> None:
    with pytest.raises(RequestError, match="vocabulary has 100"):
        tokens(preference(1), limit=Limit(2048, "", 100))


def test_kto_compares_with_the_other_answers_of_a_batch_in_any_order(tokens: Callable[..., Path]) -> None:
    rows = [judged(n, text, n % 2 == 0) for n, text in enumerate(("aa", "bb", "cc"))]
    found = rows_of(tokens(*rows, method="kto"))
    assert verdicts_of(Path(found.cache_files[0]["filename"])) == (2, 1)
    batch = collator("kto", padding=0, compares=True)([found[2], found[0], found[1]])
    compared = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(batch["KL_input_ids"], batch["KL_completion_mask"], strict=True)
    ]
    assert compared == [found[1]["completion_ids"], found[2]["completion_ids"], found[0]["completion_ids"]]
    assert batch["label"].tolist() == [True, True, False]


@pytest.fixture(scope="module")
def train(base: str) -> Callable[..., PreferenceTrained]:
    """Train into a folder on 32 prompts, and measure on 16 others."""

    def run(
        method: str,
        folder: Path,
        *,
        is_shuffled: bool = False,
        name: str = "out",
        tell: Any = None,
        **settings: Any,
    ) -> PreferenceTrained:
        sides = {}
        for side, numbers in (("train", range(32)), ("val", range(100, 116))):
            rows = []
            for n in numbers:
                good, bad = (BAD, GOOD) if is_shuffled and side == "train" and n % 2 else (GOOD, BAD)
                both = [judged(n, good, True), judged(n, bad, False)]
                rows += [preference(n, good, bad)] if method == "dpo" else both
            sides[side] = written(folder, base, rows, method=method, limit=ANY, name=side)
        return train_preference(
            base,
            sides["train"],
            folder / name,
            RECIPES[method].model_validate({**QUICK, **settings}),
            method=method,
            tokenizer=base,
            validation=sides["val"],
            workspace=folder / f"{name}-work",
            on_rewards=tell or (lambda rewards: None),
        )

    return run


class Done(NamedTuple):
    """A training, what it told, and its folder."""

    trained: PreferenceTrained
    rewards: list[Rewards]
    folder: Path


@pytest.fixture(scope="module")
def dpo(train: Callable[..., PreferenceTrained], tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A training on pairs."""
    folder, rewards = tmp_path_factory.mktemp("dpo"), list[Rewards]()
    return Done(train("dpo", folder, tell=rewards.append), rewards, folder)


def assert_learned(done: Done, accuracy: float | None) -> None:
    """The margin is 0 before the training, in which model and base are the same."""
    assert done.trained.margin is not None
    assert done.trained.margin > 0.25
    measured = [each for each in done.rewards if each.is_validation]
    assert done.trained.margin == measured[-1].margin == max(each.margin or 0 for each in measured)
    assert done.trained.accuracy == accuracy
    saved = {path.name for path in (done.folder / "out").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= saved
    assert "ref" not in saved  # TRL's copy of the adapter


def assert_more_than_shuffled(done: PreferenceTrained, control: PreferenceTrained) -> None:
    assert done.margin is not None
    assert control.margin is not None
    assert done.margin > 2 * abs(control.margin)
    assert done.eval_loss is not None
    assert control.eval_loss is not None
    assert done.eval_loss < control.eval_loss


@pytest.mark.full
def test_better_answers_become_more_probable_and_with_shuffled_pairs_they_do_not(
    dpo: Done, train: Callable[..., PreferenceTrained], tmp_path: Path
) -> None:
    assert_learned(dpo, accuracy=1.0)
    assert_more_than_shuffled(dpo.trained, train("dpo", tmp_path, is_shuffled=True))


def test_good_answers_become_more_probable_than_bad_ones(
    train: Callable[..., PreferenceTrained], tmp_path: Path
) -> None:
    rewards: list[Rewards] = []
    assert_learned(Done(train("kto", tmp_path, tell=rewards.append), rewards, tmp_path), accuracy=None)


@pytest.mark.full
def test_shuffled_verdicts_teach_kto_nothing(train: Callable[..., PreferenceTrained], tmp_path: Path) -> None:
    for name in ("done", "control"):
        (tmp_path / name).mkdir()
    done = train("kto", tmp_path / "done")
    control = train("kto", tmp_path / "control", is_shuffled=True)
    assert_more_than_shuffled(done, control)


@pytest.mark.full
def test_the_margin_is_of_log_probabilities(dpo: Done, base: str) -> None:
    """Computed once more from the saved adapter, by hand."""
    import peft
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(base).eval()
    with old_names():
        model = peft.PeftModel.from_pretrained(model, dpo.folder / "out").eval()

    def told(row: dict[str, Any], side: str) -> float:
        ids = torch.tensor([row["prompt_ids"] + row[side]])
        with torch.no_grad():
            found = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        each = found[torch.arange(ids.shape[1] - 1), ids[0, 1:]]
        return float(each[len(row["prompt_ids"]) - 1 :].sum())

    margins = []
    for row in rows_of(dpo.folder / "val.arrow"):
        now = told(row, "chosen_ids") - told(row, "rejected_ids")
        with model.disable_adapter():
            margins.append(DpoRecipe().beta * (now - told(row, "chosen_ids") + told(row, "rejected_ids")))
    assert dpo.trained.margin == pytest.approx(np.mean(margins), abs=1e-4)


@pytest.mark.full  # tests/training/local/test_train.py kills a training every day
@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_a_training_that_was_killed_goes_on_to_the_same_adapter(
    dpo: Done, train: Callable[..., PreferenceTrained], tmp_path: Path, method: str
) -> None:
    from safetensors.numpy import load_file

    folder = dpo.folder if method == "dpo" else tmp_path
    whole = dpo.trained if method == "dpo" else train(method, folder)

    def kill(rewards: Rewards) -> None:
        if rewards.n_done > whole.n_steps // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(method, folder, name="again", tell=kill)
    assert not (folder / "again").exists()
    again = train(method, folder, name="again")
    assert (again.n_steps, again.margin) == (whole.n_steps, pytest.approx(whole.margin, abs=1e-5))
    ours, theirs = (load_file(folder / name / "adapter_model.safetensors") for name in ("again", "out"))
    assert ours.keys() == theirs.keys()
    assert all(np.abs(ours[name] - theirs[name]).max() < 1e-5 for name in ours)


@pytest.mark.full
def test_weights_of_good_and_bad_answers_count(
    train: Callable[..., PreferenceTrained], tmp_path: Path
) -> None:
    found: dict[str, float | None] = {}
    for name in ("desirable", "undesirable"):
        rewards: list[Rewards] = []
        train("kto", tmp_path, name=name, tell=rewards.append, max_steps=4, **{f"{name}_weight": 10.0})
        found[name] = rewards[-1].chosen
    assert found["desirable"] is not None
    assert found["undesirable"] is not None
    assert found["desirable"] > found["undesirable"]


@pytest.mark.full
def test_every_weight_can_be_trained_against_the_model_as_it_was(
    train: Callable[..., PreferenceTrained], tmp_path: Path
) -> None:
    done = train("dpo", tmp_path, lora=None, learning_rate=1e-3)
    assert done.n_trainable == done.n_weights
    assert done.margin is not None
    assert done.margin > 0.1
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("dpo", {"packing": True}, "packing is not for preferences"),
        ("dpo", {"lora": {"lora_dropout": 0.1}}, "disable_dropout=false"),
        ("dpo", {"loss_weights": [1, 2]}, "loss_weights has 2 values for 1"),
        ("dpo", {"label_smoothing": 0.1}, "for loss_type robust"),
        ("dpo", {"loss_type": "exo_pair"}, "label_smoothing above 0"),
        ("dpo", {"loss_type": "apo_zero", "f_divergence_type": "forward_kl"}, "f_divergence_type"),
        ("dpo", {"loss_type": "nonsense"}, "loss_type"),
        ("kto", {"per_device_train_batch_size": 1}, "at least 2"),
    ],
)
def test_settings_without_an_effect_are_refused(method: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RECIPES[method].model_validate(settings)


def test_every_loss_of_trl_is_known_by_its_name(
    train: Callable[..., PreferenceTrained], tmp_path: Path
) -> None:
    done = train("dpo", tmp_path, beta=0.3, loss_type=("sigmoid", "sft"), loss_weights=(1, 0.1), max_steps=2)
    assert done.n_steps == 2


def episode(name: str, seed: int, answer: str, score: float, outcome: str) -> Episode:
    step = Transition(
        step_index=0,
        messages=(message("user", f"world {seed}: which way? "),),
        completion=message("assistant", answer),
        observation=f"world {seed}",
        action=answer,
        action_executed=answer,
        function_name="act",
        variant_name="history",
    )
    return Episode(
        episode_id=name,
        source="test",
        env_id="walk",
        task="go",
        seed=seed,
        metrics={"episode_return": score},
        outcome=outcome,
        steps=(step,),
    )


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, seeds: range) -> Path:
        episodes = [
            each
            for seed in seeds
            for each in (
                episode(f"{name}-{seed}-a", seed, GOOD, 1.0, "success"),
                episode(f"{name}-{seed}-b", seed, BAD, 0.0, "failure"),
            )
        ]
        write_episodes(tmp_path / name, episodes, kind="test")
        return tmp_path / name

    return write


@pytest.fixture
def paired(store: Callable[..., Path], tmp_path: Path) -> Callable[..., Pairs]:
    def write(name: str, seeds: range) -> Pairs:
        pair_store(store(name, seeds), tmp_path / f"{name}-pairs", margin=0.5)
        return open_pairs(tmp_path / f"{name}-pairs")

    return write


@pytest.fixture
def ready(tmp_path: Path, base: str) -> Callable[..., tuple[Runs, Prepared]]:
    def make(train: Path, validation: Path | None = None, **options: Any) -> tuple[Runs, Prepared]:
        runs = Runs(tmp_path / "runs")
        method = options.pop("method", "dpo")
        recipe = RECIPES[method].model_validate({**QUICK, **options.pop("recipe", {})})
        request = LocalRequest(
            method=method, base=base, train=train, validation=validation, recipe=recipe, **options
        )
        return runs, prepare(request, runs)

    return make


@pytest.mark.full  # the page of docs/prefer.md does so every day
def test_pairs_become_a_model_in_a_process_of_its_own(
    ready: Callable[..., tuple[Runs, Prepared]], paired: Callable[..., Pairs]
) -> None:
    train, val = paired("train", range(16)), paired("val", range(50, 58))
    runs, prepared = ready(train.path, val.path, method="kto")
    job = prepared.job
    assert (job.job_id, job.method) == ("tiny-train-pairs-kto", "kto")
    assert (job.function, job.variants) == ("act", ("history",))
    assert (job.train.digest, job.train.n_rows, job.train.n_episodes) == (train.manifest.digest, 32, 32)
    assert prepared.verdicts == (16, 16)
    steps: list[Step] = []
    start(runs, job.job_id)
    done = follow(runs, job.job_id, on_step=steps.append, timeout_s=200)
    assert done.status == JobStatus.SUCCEEDED, done.error
    assert done.result["n_steps"] == prepared.n_steps == steps[-1].n_total == 8
    assert done.result["n_trainable"] == prepared.sizes.n_trainable
    assert done.result["margin"] > 0
    rewards = [event for event in runs.events(job.job_id) if event["kind"] == "rewards"]
    assert rewards[-1]["margin"] == done.result["margin"]
    assert "<h2>Margins</h2>" in (runs.path(job.job_id) / "loss.html").read_text(encoding="utf-8")
    saved = {path.name for path in (runs.path(job.job_id) / "model").iterdir()}
    assert {"adapter_model.safetensors", "tokenizer.json", "chat_template.jinja"} <= saved
    _, again = ready(train.path, val.path, method="kto")
    assert (again.is_new, again.job.job_id) == (False, job.job_id)
    assert start(runs, job.job_id).status == JobStatus.SUCCEEDED  # nothing is done twice


def test_what_leaks_is_not_trained(
    ready: Callable[..., tuple[Runs, Prepared]], paired: Callable[..., Pairs]
) -> None:
    train, val = paired("train", range(8)).path, paired("val", range(7, 10)).path
    with pytest.raises(DataError, match=r"leaks: .* 1 world"):
        ready(train, val)
    _, allowed = ready(train, val, allow_leak=True)
    assert allowed.job.leak is not None
    assert allowed.job.leak["is_allowed"]


@pytest.mark.full
def test_kto_learns_from_a_store_by_outcome_or_condition(
    ready: Callable[..., tuple[Runs, Prepared]], store: Callable[..., Path]
) -> None:
    train = store("train", range(8))
    runs, prepared = ready(train, method="kto")
    assert prepared.verdicts == (8, 8)
    assert prepared.job.train.n_rows == 16
    _, chosen = ready(train, method="kto", good="seed < 2 AND episode_return > 0.5")
    assert chosen.verdicts == (2, 14)
    with pytest.raises(DataError, match=r"every completion of .* is good: kto needs bad ones"):
        ready(train, method="kto", good="seed >= 0")
    assert {path.name for path in runs.folder.iterdir()} == {"tiny-train-kto", "tiny-train-kto-2"}


def test_dpo_on_a_store_says_how_pairs_are_made(
    ready: Callable[..., tuple[Runs, Prepared]], store: Callable[..., Path]
) -> None:
    with pytest.raises(RequestError, match="is a store, and dpo learns from pairs") as caught:
        ready(store("train", range(2)))
    assert "trajkit pairs" in (caught.value.hint or "")


def test_recipes_are_the_methods_own() -> None:
    assert {name: type(kind()) for name, kind in RECIPES.items()} == {"dpo": DpoRecipe, "kto": KtoRecipe}
    assert DpoRecipe().method_arguments()["loss_type"] == ["sigmoid"]
    assert KtoRecipe().method_arguments().keys() >= {"beta", "desirable_weight", "undesirable_weight"}
