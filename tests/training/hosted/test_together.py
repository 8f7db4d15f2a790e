"""Together: the life of a job over real HTTP, with its own SDK as the judge of stand-in and requests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.hosted import life, sdk
from tests.training.hosted.life import ROW, Begin, Ready, Running, everything
from tests.training.hosted.loopback import Reply
from tests.training.hosted.together_standin import KEY, MODEL, N_STEPS, TogetherStandIn
from trajkit.errors import RequestError, ServiceError
from trajkit.training.hosted import launch
from trajkit.training.hosted.answer import Unreachable
from trajkit.training.hosted.service import Order
from trajkit.training.hosted.together import files
from trajkit.training.hosted.together.connect import Together, connect
from trajkit.training.job import JobStatus, Step


@pytest.fixture
def running(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> Running:
    return begin("together", monkeypatch)


@pytest.fixture
def together(running: Running) -> TogetherStandIn:
    assert isinstance(running.server, TogetherStandIn)
    return running.server


@pytest.fixture
def service(together: TogetherStandIn) -> Together:
    return connect({"base_url": together.url})


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are sent in parts of 1,500 bytes."""
    monkeypatch.setattr(files, "PARTS_FROM", 1000)
    monkeypatch.setattr(files, "PART_BYTES", 1500)


def order(**about: Any) -> Order:
    return life.order(**{"base": MODEL, "training_file": "file-1", **about})


def test_a_job_is_uploaded_created_followed_and_named(together: TogetherStandIn, job: Ready) -> None:
    launch.start(*job)
    seen: list[Step] = []
    said: list[str] = []
    done = launch.follow(*job, on_step=seen.append, on_message=said.append)
    (remote,) = together.jobs.values()
    assert done.status == JobStatus.SUCCEEDED
    assert done.result["model"] == remote["model_output_name"]
    assert done.key[:12] in remote["model_output_name"]
    assert done.result["n_trained_tokens"] == 12_345
    assert done.result["cost_usd"] == pytest.approx(4.2)
    assert [step.loss for step in seen if step.loss] == [2 / n for n in range(1, N_STEPS + 1)]
    assert [step.eval_loss for step in seen if step.eval_loss] == [2.5 / 3, 2.5 / 6]
    assert {step.n_total for step in seen} == {N_STEPS}
    assert "Fine tune request created" in said
    assert "the service's price of the job: 4.20 USD" in said
    assert together.contents["file-1"] == (job.folder / "training.jsonl").read_bytes()
    assert remote["n_evals"] == 2, "one validation per epoch, because there are rows that measure"
    names = [one["model"] for one in done.remote["checkpoints"]]  # type: ignore[union-attr,index,call-overload]
    assert KEY not in everything(job.folder)
    assert names == ["me/tuned-3", "me/tuned-3-adapter", "me/tuned-6", "me/tuned-6-adapter"]


@pytest.mark.parametrize("status", ["error", "user_error"])
def test_a_job_that_fails_says_why(together: TogetherStandIn, job: Ready, status: str) -> None:
    together.life = ("pending", "running", status)
    launch.start(*job)
    done = launch.follow(*job)
    assert done.status == JobStatus.FAILED
    assert together.why in str(done.error)
    assert not together.files, "what was sent is removed"


def test_rows_that_together_does_not_take_are_named_and_removed(
    together: TogetherStandIn, service: Together, rows: Path
) -> None:
    rows.write_text(f'{json.dumps(ROW)}\n{{"text": "no"}}\n')
    with pytest.raises(ServiceError, match="Line 2: must contain messages"):
        service.upload(rows)
    assert not together.files


def test_the_same_bytes_are_sent_once(together: TogetherStandIn, service: Together, rows: Path) -> None:
    assert service.upload(rows) == service.upload(rows) == "file-1"
    assert together.count("PUT", "/storage/file-1") == 1


@pytest.mark.usefixtures("in_parts")
def test_a_large_file_goes_in_parts(together: TogetherStandIn, service: Together, rows: Path) -> None:
    seen: list[tuple[int, int]] = []
    file_id = service.upload(rows, on_sent=lambda n_done, n_total: seen.append((n_done, n_total)))
    n_bytes = rows.stat().st_size
    assert together.contents[file_id] == rows.read_bytes()
    assert seen == [(min(1500 * n, n_bytes), n_bytes) for n in range(1, -(-n_bytes // 1500) + 1)]


@pytest.mark.usefixtures("in_parts")
def test_parts_that_do_not_arrive_are_given_up(
    together: TogetherStandIn, service: Together, rows: Path
) -> None:
    together.refuse["PUT /storage/file-1/2"] = Reply(b"no room", 507)
    with pytest.raises(Unreachable, match="no room"):
        service.upload(rows)
    assert together.count("POST", "/v1/files/multipart/abort") == 1
    assert not together.files


def test_an_upload_that_is_sent_elsewhere_follows(
    together: TogetherStandIn, service: Together, rows: Path
) -> None:
    goal = {"Location": f"{together.url}/storage/elsewhere"}
    together.refuse["PUT /storage/file-1"] = Reply(b"", 307, goal)
    together.refuse["POST /v1/files/file-1/preprocess"] = Reply({"id": "file-1"})
    together.refuse["GET /v1/files/file-1"] = Reply({"id": "file-1", "processing_status": "COMPLETED"})
    service.upload(rows)
    assert together.contents["elsewhere"] == rows.read_bytes()


def test_a_file_that_another_job_reads_stays(
    together: TogetherStandIn, service: Together, rows: Path
) -> None:
    file_id = service.upload(rows)
    state = service.create(order(training_file=file_id))
    service.delete_file(file_id)
    assert file_id in together.files
    service.cancel(state.remote_id)
    service.delete_file(file_id)
    assert not together.files
    service.delete_file(file_id)  # what is gone is no error


def test_a_job_that_the_account_cannot_pay_for_is_not_made(
    together: TogetherStandIn, service: Together, rows: Path
) -> None:
    together.can_pay = False
    with pytest.raises(ServiceError, match=r"expects 4\.20 USD.*has 1\.50 USD left"):
        service.create(order(training_file=service.upload(rows)))
    assert not together.jobs


def test_an_estimate_that_does_not_come_is_no_reason_not_to_train(
    together: TogetherStandIn, service: Together, rows: Path
) -> None:
    together.refuse["POST /v1/fine-tunes/estimate-price"] = Reply({"error": "what?"}, 404)
    assert service.create(order(training_file=service.upload(rows))).facts.get("expected_usd") is None


def test_preflight_knows_the_longest_row_and_refuses_other_models(service: Together) -> None:
    assert service.preflight(MODEL).max_tokens == 32768
    with pytest.raises(ServiceError, match="does not tune no/model: Model is not supported") as caught:
        service.preflight("no/model")
    assert caught.value.hint is not None


def test_a_page_that_is_no_api_is_told_as_such(together: TogetherStandIn, service: Together) -> None:
    together.refuse["GET /v1/fine-tunes/models/limits"] = Reply(b"<html>Sign in</html>")
    with pytest.raises(ServiceError, match="other than a JSON object: '<html>Sign in"):
        service.preflight(MODEL)


def test_the_address_may_come_from_the_environment_with_or_without_v1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOGETHER_BASE_URL", "http://127.0.0.1:1/v1/")
    assert connect({}).settings == {"base_url": "http://127.0.0.1:1"}
    monkeypatch.delenv("TOGETHER_BASE_URL")
    assert connect({}).where == "https://api.together.ai"
    with pytest.raises(RequestError, match="not the address of an API"):
        connect({"base_url": "together.example"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_epochs": 0}, "n_epochs: "),
        ({"epochs": 2}, "epochs: Extra inputs"),
        ({"lora_alpha": 8}, "lora_alpha also needs lora_r"),
        ({"lora": False, "lora_r": 8}, "lora_r is an option of an adapter"),
        ({"dpo_beta": 0.1}, "dpo_beta is an option of preferences"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(service: Together, given: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        service.resolved("sft", given)


def test_the_learning_rate_follows_what_is_trained(service: Together) -> None:
    assert service.resolved("sft", {})["learning_rate"] == 2e-4
    assert service.resolved("sft", {"lora": False})["learning_rate"] == 1e-5
    assert service.resolved("sft", {"learning_rate": 3e-3})["learning_rate"] == 3e-3


def test_the_suffix_is_as_long_as_together_lets_it_be(
    together: TogetherStandIn, service: Together, rows: Path
) -> None:
    file_id = service.upload(rows)
    state = service.create(order(training_file=file_id, name="A very long name, of a job & its store"))
    suffix = together.jobs[state.remote_id]["suffix"]
    assert suffix == "a-very-long-name-of-a-job-i-0123456789ab"
    assert len(suffix) == 40


_LIFE = """
from pathlib import Path
from together import Together
client = Together(api_key=key, base_url=url, max_retries=0, _strict_response_validation=True)
file = client.files.upload(Path(given["rows"]), check=False)
client.files.retrieve(file.id)
client.files.list()
limits = client.fine_tuning.model_limits(model_name=given["model"])
made = client.fine_tuning.create(training_file=file.id, validation_file=file.id, **given["recipe"])
statuses = []
for _ in range(8):
    statuses.append(client.fine_tuning.retrieve(made.id).status)
found = {
    "file": file.id,
    "status": [str(getattr(one, "value", one)) for one in statuses],
    "n_listed": len(client.fine_tuning.list().data),
    "events": [one.message for one in client.fine_tuning.list_events(made.id).data],
    "n_metrics": len(client.fine_tuning.list_metrics(made.id).metrics),
    "checkpoints": [one.object_name for one in client.fine_tuning.list_checkpoints(made.id).data],
    "cancelled": client.fine_tuning.cancel(made.id).status,
    "deleted": client.files.delete(file.id).deleted,
}
"""

_RECIPE = {
    "n_epochs": 2,
    "n_evals": 2,
    "learning_rate": 3e-4,
    "batch_size": 8,
    "lora": True,
    "lora_r": 4,
    "lora_alpha": 16,
    "lora_dropout": 0.1,
    "warmup_ratio": 0.05,
    "weight_decay": 0.01,
    "random_seed": 7,
    "max_seq_length": 2048,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sdk.wheel_of("together", "3.1.1", tmp_path_factory.mktemp("together"))


@pytest.mark.full
def test_together_s_sdk_lives_with_the_stand_in_and_asks_as_we_do(
    wheel: Path, together: TogetherStandIn, service: Together, rows: Path
) -> None:
    recipe = _RECIPE | {"model": MODEL, "suffix": "my-job-0123456789ab", "train_on_inputs": False}
    found = sdk.run(wheel, _LIFE, together.url, KEY, rows=rows, model=MODEL, recipe=recipe)
    assert found["status"][-1] == "completed"
    assert (found["n_listed"], found["n_metrics"], found["deleted"]) == (1, N_STEPS + 2, True)
    theirs = list(together.requests)
    together.requests.clear()
    together.jobs.clear()

    file_id = service.upload(rows)
    resolved = service.resolved("sft", _RECIPE)
    state = service.create(order(training_file=file_id, validation_file=file_id, recipe=resolved))
    service.events(state.remote_id)
    service.checkpoints(state.remote_id)
    service.cancel(state.remote_id)
    service.delete_file(file_id)

    for method, path in (("POST", "/v1/files"), ("POST", "/v1/fine-tunes/estimate-price")):
        one, other = (
            next(each for each in requests if (each.method, each.path) == (method, path))
            for requests in (theirs, together.requests)
        )
        if path == "/v1/files":
            assert one.form == other.form
            assert one.form["checksum"].decode() == hashlib.sha256(rows.read_bytes()).hexdigest()
        else:
            assert one.json | {"training_file": "", "validation_file": ""} == other.json | {
                "training_file": "",
                "validation_file": "",
            }
    one, other = (
        next(each for each in requests if str(each) == "POST /v1/fine-tunes").json
        for requests in (theirs, together.requests)
    )
    files = {"training_file": "", "validation_file": ""}
    assert one | files == other | files | {"early_stopping_enabled": False}
    assert {_shape(str(each)) for each in together.requests} <= {_shape(str(each)) for each in theirs}


def _shape(request: str) -> str:
    return request.replace("file-2", "file-1").replace("ft-0002", "ft-0001")


_PREFERENCES = """
from together import Together
client = Together(api_key=key, base_url=url, max_retries=0, _strict_response_validation=True)
found = client.fine_tuning.create(
    model=given["model"], training_file="file-1", suffix="my-job-0123456789ab", n_epochs=3,
    learning_rate=2e-4, training_method="dpo", dpo_beta=0.2,
).id
"""


@pytest.mark.full
def test_together_s_sdk_asks_for_preferences_as_we_do(
    wheel: Path, together: TogetherStandIn, service: Together, rows: Path
) -> None:
    resolved = service.resolved("dpo", {"dpo_beta": 0.2})
    service.create(order(method="dpo", training_file=service.upload(rows), recipe=resolved))
    sdk.run(wheel, _PREFERENCES, together.url, KEY, model=MODEL)
    ours, theirs = (one.json for one in together.requests if str(one) == "POST /v1/fine-tunes")
    assert theirs == ours | {"validation_file": "", "early_stopping_enabled": False}


_PARTS = """
from pathlib import Path
import together.lib.resources.files as files
from together import Together
files.MULTIPART_THRESHOLD_GB = 1000 / 2**30
files._calculate_parts = lambda size: (1500, -(-size // 1500))
client = Together(api_key=key, base_url=url, max_retries=0, _strict_response_validation=True)
found = client.files.upload(Path(given["rows"]), check=False).id
"""


@pytest.mark.full
@pytest.mark.usefixtures("in_parts")
def test_together_s_sdk_sends_parts_as_we_do(
    wheel: Path, together: TogetherStandIn, service: Together, rows: Path
) -> None:
    sdk.run(wheel, _PARTS, together.url, KEY, rows=rows)
    theirs = list(together.requests)
    together.requests.clear()
    together.files.clear()
    service.upload(rows)
    one, other = (
        {str(each): each.json for each in requests if "multipart" in each.path}
        for requests in (theirs, together.requests)
    )
    assert one == other
    assert {str(each) for each in theirs if each.method == "PUT"} == {
        str(each) for each in together.requests if each.method == "PUT"
    }
