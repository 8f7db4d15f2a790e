"""Fireworks: the life of a job over real HTTP, with its own SDK as the judge of stand-in and requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.hosted import life, sdk
from tests.training.hosted.fireworks_standin import ACCOUNT, KEY, MODEL, N_STEPS, FireworksStandIn
from tests.training.hosted.life import Begin, Ready, Running, everything
from tests.training.hosted.loopback import Reply
from trajkit.errors import RequestError, ServiceError
from trajkit.training.hosted import launch
from trajkit.training.hosted.fireworks.connect import Fireworks, connect
from trajkit.training.hosted.service import Order
from trajkit.training.job import JobStatus, Step

CREATE = f"POST /v1/{ACCOUNT}/supervisedFineTuningJobs"


@pytest.fixture
def running(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> Running:
    return begin("fireworks", monkeypatch)


@pytest.fixture
def fireworks(running: Running) -> FireworksStandIn:
    assert isinstance(running.server, FireworksStandIn)
    return running.server


@pytest.fixture
def service(fireworks: FireworksStandIn) -> Fireworks:
    return connect({"base_url": fireworks.url})


def order(**about: Any) -> Order:
    return life.order(**{"base": "qwen3-8b", "training_file": f"{ACCOUNT}/datasets/none", **about})


def test_a_job_is_uploaded_created_followed_and_named(fireworks: FireworksStandIn, job: Ready) -> None:
    launch.start(*job)
    seen: list[Step] = []
    said: list[str] = []
    done = launch.follow(*job, on_step=seen.append, on_message=said.append)
    ((name, remote),) = fireworks.jobs.items()
    assert done.status == JobStatus.SUCCEEDED
    assert done.result["model"] == remote["outputModel"]
    assert remote["outputModel"].startswith(f"{ACCOUNT}/models/")
    assert name == f"{ACCOUNT}/supervisedFineTuningJobs/trajkit-{done.key[:24]}"
    assert [step.loss for step in seen if step.loss] == [2 / n for n in range(1, N_STEPS + 1)]
    assert [step.eval_loss for step in seen if step.eval_loss] == [2.5 / 2, 2.5 / 4]
    assert any(word.endswith("% of epoch 1") for word in said)
    assert "the service's price of the job: 3.25 USD" in said
    assert remote["epochs"] == 2
    assert remote["baseModel"] == MODEL
    assert remote["evalAutoCarveout"] is False, "the worlds that measure are ours to choose"
    assert fireworks.contents[remote["dataset"]] == (job.folder / "training.jsonl").read_bytes()
    assert fireworks.contents[remote["evaluationDataset"]] == (job.folder / "validation.jsonl").read_bytes()
    rows = [json.loads(line) for line in (job.folder / "training.jsonl").read_text().splitlines()]
    assert {row["weight"] for row in rows} == {1.0}
    assert KEY not in everything(job.folder)
    assert done.remote["state"]["facts"] == {"expected_usd": 3.25}  # type: ignore[index,call-overload]


def test_losses_may_stand_a_level_deeper(fireworks: FireworksStandIn, job: Ready) -> None:
    fireworks.is_flat = False
    launch.start(*job)
    seen: list[Step] = []
    launch.follow(*job, on_step=seen.append)
    assert [step.loss for step in seen if step.loss] == [2 / n for n in range(1, N_STEPS + 1)]


def test_a_job_that_is_made_by_another_process_meanwhile_is_taken_up(
    fireworks: FireworksStandIn, service: Fireworks, rows: Path
) -> None:
    asked = order(training_file=service.upload(rows))
    look = f"GET /v1/{ACCOUNT}/supervisedFineTuningJobs/trajkit-{asked.mark[:24]}"
    connect({"base_url": fireworks.url, "account": "me"}).create(asked)
    fireworks.refuse_once[look] = Reply({"code": 5, "message": "not there yet", "details": []}, 404)
    assert service.create(asked).remote_id == look.removeprefix("GET /v1/")
    assert len(fireworks.jobs) == 1


def test_a_job_that_fails_says_why_and_the_next_attempt_has_a_name_of_its_own(
    fireworks: FireworksStandIn, job: Ready
) -> None:
    fireworks.life = ("CREATING", "RUNNING", "FAILED")
    launch.start(*job)
    done = launch.follow(*job)
    assert done.status == JobStatus.FAILED
    assert f"INVALID_ARGUMENT: {fireworks.why}" in str(done.error)
    assert not fireworks.datasets, "what was sent is removed"
    fireworks.life = ("CREATING", "RUNNING", "COMPLETED")
    launch.start(*job)
    done = launch.follow(*job)
    assert done.status == JobStatus.SUCCEEDED
    assert [name.rpartition("/")[2] for name in fireworks.jobs] == [
        f"trajkit-{done.key[:24]}",
        f"trajkit-{done.key[:24]}-2",
    ]
    assert str(done.result["model"]).endswith("-2")


def test_a_job_that_fireworks_halted_goes_on_with_resume(fireworks: FireworksStandIn, job: Ready) -> None:
    launch.start(*job)
    for remote in fireworks.jobs.values():
        remote["state"] = "JOB_STATE_PAUSED"
    assert launch.refreshed(*job).remote["state"]["is_paused"] is True  # type: ignore[index,call-overload]
    assert launch.resume(*job).remote["state"]["is_paused"] is False  # type: ignore[index,call-overload]
    with pytest.raises(RequestError, match="cannot pause"):
        launch.pause(*job)


def test_rows_that_fireworks_does_not_take_are_named_and_removed(
    fireworks: FireworksStandIn, service: Fireworks, rows: Path
) -> None:
    rows.write_text('{"text": "no"}\n' * 3)
    with pytest.raises(ServiceError, match="a row has no messages"):
        service.upload(rows)
    assert not fireworks.datasets


def test_a_large_file_goes_to_an_address_of_its_own(
    fireworks: FireworksStandIn, service: Fireworks, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajkit.training.hosted.fireworks.data.DIRECT_BYTES", 1000)
    fireworks.n_early = 2
    seen: list[tuple[int, int]] = []
    name = service.upload(rows, on_sent=lambda n_done, n_total: seen.append((n_done, n_total)))
    assert fireworks.contents[name] == rows.read_bytes()
    assert seen == [(rows.stat().st_size, rows.stat().st_size)]
    assert fireworks.datasets[name]["exampleCount"] == "50"


def test_preflight_knows_the_longest_row_and_refuses_other_models(service: Fireworks) -> None:
    assert service.preflight("qwen3-8b").max_tokens == service.preflight(MODEL).max_tokens == 32768
    with pytest.raises(ServiceError, match="has no model nothing: nothing was not found"):
        service.preflight("nothing")
    with pytest.raises(ServiceError, match="does not tune closed"):
        service.preflight("closed")


def test_a_suspended_account_is_told_before_anything_is_sent(
    fireworks: FireworksStandIn, service: Fireworks
) -> None:
    fireworks.accounts[0]["suspendState"] = "CREDIT_DEPLETED"
    with pytest.raises(ServiceError, match="accounts/me is suspended: CREDIT_DEPLETED"):
        service.preflight("qwen3-8b")


def test_of_several_accounts_one_must_be_named(fireworks: FireworksStandIn, service: Fireworks) -> None:
    fireworks.accounts.append({"name": "accounts/team", "email": "team@example.com"})
    with pytest.raises(RequestError, match="several Fireworks accounts") as caught:
        service.preflight("qwen3-8b")
    assert "accounts of this key: me, team" in str(caught.value.hint)


def test_the_account_may_come_from_the_environment(
    fireworks: FireworksStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIREWORKS_ACCOUNT_ID", "me")
    service = connect({"base_url": fireworks.url})
    service.preflight("qwen3-8b")
    assert fireworks.count("GET", "/v1/accounts") == 0
    assert service.settings == {"base_url": fireworks.url, "account": ACCOUNT}
    assert connect(service.settings).settings == service.settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": 0}, "epochs: "),
        ({"n_epochs": 2}, "n_epochs: Extra inputs"),
        ({"beta": 0.1}, "beta is an option of preferences"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(service: Fireworks, given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        service.resolved("sft", given)


_LIFE = """
from pathlib import Path
from fireworks import Fireworks
options = {"max_retries": 0, "_strict_response_validation": True}
client = Fireworks(api_key=key, account_id="me", base_url=url, **options)
data = given["data"]
account = client.accounts.get(account_id="me").name
model = client.models.get(model_id="qwen3-8b", account_id="fireworks").tunable
client.datasets.create(dataset_id=data, dataset={"user_uploaded": {}, "example_count": "50"})
with Path(given["rows"]).open("rb") as file:
    client.datasets.upload(data, file=file)
state = [client.datasets.get(data).state for _ in range(2)]
made = client.supervised_fine_tuning_jobs.create(
    dataset=f"accounts/me/datasets/{data}",
    evaluation_dataset=f"accounts/me/datasets/{data}",
    supervised_fine_tuning_job_id=given["job"],
    **given["recipe"],
)
states = [client.supervised_fine_tuning_jobs.get(given["job"]).state for _ in range(6)]
last = client.supervised_fine_tuning_jobs.get(given["job"])
client.supervised_fine_tuning_jobs.resume(given["job"], body={})
client.supervised_fine_tuning_jobs.cancel(given["job"], body={})
large = data + "-large"
client.datasets.create(dataset_id=large, dataset={"user_uploaded": {}, "example_count": "50"})
client.datasets.get_upload_endpoint(large, filename_to_size={"training.jsonl": given["n_bytes"]})
client.datasets.get(large)
client.datasets.delete(data)
found = {
    "account": account,
    "tunable": model,
    "dataset": state,
    "states": states,
    "model": last.output_model,
    "cost": last.estimated_cost.nanos,
    "accounts": [one.name for one in client.accounts.list()],
}
"""

_RECIPE = {
    "epochs": 2,
    "learning_rate": 3e-4,
    "lora_rank": 8,
    "max_context_length": 16384,
    "batch_size_samples": 4,
    "learning_rate_warmup_steps": 5,
    "optimizer_weight_decay": 0.01,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdk.wheel_of("fireworks_ai", "1.2.30", tmp_path_factory.mktemp("fireworks"))


@pytest.mark.full
def test_fireworks_sdk_lives_with_the_stand_in_and_asks_as_we_do(
    wheel: Path,
    fireworks: FireworksStandIn,
    service: Fireworks,
    rows: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file_id = service.upload(rows)
    resolved = service.resolved("sft", _RECIPE)
    asked = order(training_file=file_id, validation_file=file_id, recipe=resolved)
    service.preflight("qwen3-8b")
    service.create(asked)
    remote_id = f"{ACCOUNT}/supervisedFineTuningJobs/trajkit-{asked.mark[:24]}"
    service.status(remote_id)
    service.resume(remote_id)
    service.cancel(remote_id)
    monkeypatch.setattr("trajkit.training.hosted.fireworks.data.DIRECT_BYTES", 1000)
    large = service.upload(rows)
    service.delete_file(file_id)
    ours = list(fireworks.requests)
    fireworks.reset()

    data = file_id.rpartition("/")[2]
    recipe = _RECIPE | {
        "base_model": MODEL,
        "output_model": f"{ACCOUNT}/models/my-job-01234567",
        "display_name": "my Job",
        "eval_auto_carveout": False,
        "is_turbo": False,
    }
    given = {"rows": rows, "n_bytes": str(rows.stat().st_size), "data": data, "recipe": recipe}
    found = sdk.run(wheel, _LIFE, fireworks.url, KEY, job=f"trajkit-{asked.mark[:24]}", **given)
    assert found["account"] == ACCOUNT
    assert found["accounts"] == [ACCOUNT]
    assert found["tunable"] is True
    assert found["dataset"] == ["UPLOADING", "READY"]
    assert found["states"][-1] == "JOB_STATE_COMPLETED"
    assert found["model"] == f"{ACCOUNT}/models/my-job-01234567"
    assert found["cost"] == 250_000_000

    theirs = {_shape(str(one), data): one for one in fireworks.requests}
    for request in ours:
        shape = _shape(str(request), data, large.rpartition("/")[2])
        if "/storage/" in shape or shape.endswith(":validateUpload"):
            continue
        other = theirs[shape]
        if shape.endswith(":upload"):
            assert request.form == other.form
        elif "-large" not in shape and not shape.endswith("/datasets"):
            assert request.json == other.json, shape
        assert request.query == other.query, shape
    one, other = (
        next(each for each in requests if str(each).endswith("/datasets")).json
        for requests in (ours, fireworks.requests)
    )
    assert one == other
    one, other = (
        next(each for each in requests if str(each).endswith(":getUploadEndpoint")).json
        for requests in (ours, fireworks.requests)
    )
    assert one == other


_PREFERENCES = """
from fireworks import Fireworks
client = Fireworks(api_key=key, account_id="me", base_url=url, max_retries=0)
found = client.dpo_jobs.create(
    dataset=given["dataset"],
    dpo_job_id=given["job"],
    display_name="my Job",
    loss_config={"method": "DPO", "dpo": {"beta": 0.2}},
    training_config={
        "base_model": given["model"], "epochs": 3, "output_model": "accounts/me/models/my-job-01234567"
    },
).name
found = [found, client.dpo_jobs.get_metrics_file_endpoint(given["job"]).signed_url]
"""


@pytest.mark.full
def test_fireworks_sdk_asks_for_preferences_as_we_do(
    wheel: Path, fireworks: FireworksStandIn, service: Fireworks, rows: Path
) -> None:
    asked = order(
        method="dpo", training_file=service.upload(rows), recipe=service.resolved("dpo", {"beta": 0.2})
    )
    state = service.create(asked)
    for _ in fireworks.life:
        state = service.status(state.remote_id)
    assert (state.status, state.model) == (JobStatus.SUCCEEDED, f"{ACCOUNT}/models/my-job-01234567")
    assert len([event for event in service.events(state.remote_id) if event.step]) == N_STEPS + N_STEPS // 2
    fireworks.jobs.clear()
    job = f"trajkit-{asked.mark[:24]}"
    found = sdk.run(
        wheel, _PREFERENCES, fireworks.url, KEY, model=MODEL, dataset=asked.training_file, job=job
    )
    assert found[0] == state.remote_id
    ours, theirs = (one for one in fireworks.requests if str(one) == f"POST /v1/{ACCOUNT}/dpoJobs")
    assert (ours.json, ours.query) == (theirs.json, theirs.query)
    with pytest.raises(RequestError, match="no validation for preferences"):
        service.create(asked.model_copy(update={"validation_file": asked.training_file}))


def _shape(request: str, data: str, large: str = "") -> str:
    """A request, whatever its dataset is called."""
    return request.replace(large or "-", f"{data}-large" if large else "-").replace(data, "DATA")
