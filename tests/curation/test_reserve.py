from __future__ import annotations

import json
from pathlib import Path

import pytest

from trajkit._core.seeds import Seeds, as_seeds
from trajkit._core.settings import project, refuse_reserved, reserved
from trajkit.cli.main import run
from trajkit.curation.reserve import reserve
from trajkit.environments import make
from trajkit.errors import ConfigError, RequestError


def test_a_reservation_is_kept_with_its_initial_states(tmp_path: Path) -> None:
    done = reserve("babyai", seeds="200:203", tasks=("goto", "open"), folder=tmp_path)
    assert (done.path, done.is_new) == (tmp_path / "trajkit.toml", True)
    (found,) = reserved(tmp_path)
    assert (found.env, found.tasks, str(found.seeds)) == ("babyai", ("goto", "open"), "200:203")
    expected = []
    for task in ("goto", "open"):
        environment = make("babyai", task)
        expected += [environment.reset(seed).initial_state_hash for seed in (200, 201, 202)]
    assert list(found.states) == expected


def test_what_is_reserved_already_is_not_written_twice(tmp_path: Path) -> None:
    reserve("babyai", seeds="0:3", with_states=False, folder=tmp_path)
    before = (tmp_path / "trajkit.toml").read_bytes()
    again = reserve("babyai", seeds="0:3", tasks=["goto"], with_states=False, folder=tmp_path)
    assert not again.is_new
    assert (tmp_path / "trajkit.toml").read_bytes() == before
    assert reserve("babyai", seeds="0:4", with_states=False, folder=tmp_path).is_new
    assert len(reserved(tmp_path)) == 2


def test_the_file_keeps_its_comments_and_its_place_in_the_project(tmp_path: Path) -> None:
    text = '# ours\nfunction = "act"  # the one\n\n[[reserved]]\nenv = "mine"\ntasks = ["a"]\nseeds = "1,5"\n'
    (tmp_path / "trajkit.toml").write_text(text)
    inner = tmp_path / "runs" / "today"
    inner.mkdir(parents=True)
    done = reserve("babyai", seeds="0:2", with_states=False, folder=inner)
    assert done.path == tmp_path / "trajkit.toml"
    assert done.path.read_text().startswith(text)
    assert project(tmp_path).function == "act"
    assert [each.env for each in reserved(inner)] == ["mine", "babyai"]


def test_an_inline_list_of_reservations_grows_too(tmp_path: Path) -> None:
    path = tmp_path / "trajkit.toml"
    path.write_text('reserved = [{env = "mine", tasks = ["a"], seeds = "1:5"}]\nmodel = "m"\n')
    reserve("babyai", seeds="0:2", with_states=False, folder=tmp_path)
    assert [each.env for each in reserved(tmp_path)] == ["mine", "babyai"]
    assert project(tmp_path).model == "m"


def test_without_a_file_it_is_made_at_the_root_of_the_project(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "deep" / "down"
    inner.mkdir(parents=True)
    assert reserve("babyai", seeds="0:2", with_states=False, folder=inner).path == tmp_path / "trajkit.toml"


def test_reservations_of_every_folder_upward_hold(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder, env in ((tmp_path, "outer-env"), (inner, "inner-env")):
        (folder / "trajkit.toml").write_text(f'[[reserved]]\nenv = "{env}"\ntasks = ["t"]\nseeds = "0:9"\n')
    assert [each.env for each in reserved(inner)] == ["inner-env", "outer-env"]
    assert [each.env for each in reserved(tmp_path)] == ["outer-env"]
    with pytest.raises(RequestError, match="seed 3 of outer-env t is reserved for evaluation"):
        refuse_reserved("outer-env", ["t"], "3:4", folder=inner)


@pytest.mark.parametrize(
    ("env", "tasks", "seeds", "refused"),
    [
        ("world", ["goto"], "219:230", 219),
        ("world", ["open", "goto"], "0:1000000000000", 200),
        ("world", ["goto"], "1:1000:2", 201),
        ("world", ["goto"], "7,13,205", 205),
        ("world", ["goto"], "220:300", None),
        ("world", ["goto"], "0:200", None),
        ("world", ["open"], "200:220", None),
        ("other", ["goto"], "200:220", None),
    ],
)
def test_training_on_a_reserved_seed_is_refused(
    tmp_path: Path, env: str, tasks: list[str], seeds: str, refused: int | None
) -> None:
    (tmp_path / "trajkit.toml").write_text(
        '[[reserved]]\nenv = "world"\ntasks = ["goto"]\nseeds = "200:220"\n'
    )
    if refused is None:
        refuse_reserved(env, tasks, seeds, folder=tmp_path)
        return
    with pytest.raises(RequestError, match=rf"seed {refused} of world goto is reserved .*trajkit\.toml"):
        refuse_reserved(env, tasks, as_seeds(seeds), folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[reserved]]\nenv = "w"\ntasks = ["t"]\nseeds = "9:1"\n', "reserved.0.seeds: no seed is in 9:1"),
        ('[[reserved]]\nenv = "w"\ntasks = ["t"]\nseeds = 5\n', "seeds are written as text"),
        ('[[reserved]]\nenv = "w"\ntasks = []\nseeds = "1"\n', "reserved.0.tasks"),
        ('[[reserved]]\nenv = "w"\ntask = "t"\nseeds = "1"\n', "known keys: env, seeds, states, tasks"),
        ("reserved = 3\n", "known keys: config"),
    ],
)
def test_a_reservation_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "trajkit.toml").write_text(text)
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        reserved(tmp_path)


def test_what_cannot_be_reserved_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    for options, said in (
        ({"env_id": "babyay", "seeds": "0:2"}, "no environment 'babyay'"),
        ({"env_id": "babyai", "seeds": "0:2", "tasks": ("gto",), "with_states": False}, "no task 'gto'"),
        ({"env_id": "babyai", "seeds": "5:2"}, "no seed is in 5:2"),
        ({"env_id": "babyai", "seeds": "0:1000000"}, "5,000,000 worlds are too many"),
    ):
        with pytest.raises(RequestError, match=said):
            reserve(**options, folder=tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    (tmp_path / "trajkit.toml").write_text("model = \n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        reserve("babyai", seeds="0:2", with_states=False, folder=tmp_path)
    assert (tmp_path / "trajkit.toml").read_text() == "model = \n"


def test_worlds_that_trajkit_does_not_know_can_be_reserved_by_name(tmp_path: Path) -> None:
    reserve("our-app", seeds="0:2", tasks=("refund",), with_states=False, folder=tmp_path)
    assert [str(each) for each in reserved(tmp_path)] == ["our-app refund seeds 0:2"]


def test_the_command_reserves_and_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["reserve", "babyai", "--task", "goto", "--seeds", "200:202"]
    assert run([*arguments, "--dry-run"]) == 0
    assert not Path("trajkit.toml").exists()
    assert run(arguments) == 0
    line = f"{tmp_path / 'trajkit.toml'}  babyai goto seeds 200:202  2 initial states"
    assert capsys.readouterr().out.splitlines() == [line, line]
    assert run(["reserve"]) == 0
    assert capsys.readouterr().out.splitlines() == [line]
    assert run(["reserve", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["env"], shown["tasks"], shown["seeds"]) == ("babyai", ["goto"], "200:202")
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["is_new"] is False
    assert "nothing was written" in printed.err
    assert run(["reserve", "babyai"]) == 2
    assert run(["reserve", "--seeds", "0:2"]) == 2


def test_two_lists_of_seeds_know_the_first_that_they_share() -> None:
    numbers = [range(0, 40, 6), range(3, 50, 7), range(10, 12), range(45, 46), range(1, 60, 4)]
    for one in numbers:
        for other in numbers:
            expected = min(set(one) & set(other), default=None)
            assert Seeds([one]).first_shared(Seeds([other])) == expected
    many = Seeds([range(5), range(10, 20), range(30, 31)])
    assert many.first_shared(Seeds([range(6, 9), range(21, 31)])) == 30
    assert many.first_shared(Seeds([range(1, 60, 9), range(2, 60, 9)])) == 1
    assert Seeds([range(0, 10**15, 2)]).first_shared(Seeds([range(1, 10**15, 2)])) is None


def test_a_rollout_for_training_refuses_a_reserved_seed_and_one_for_evaluation_plays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    reserve("babyai", seeds="200:220", tasks=("goto",), with_states=False)
    play = ["rollout", "babyai", "--policy", "expert", "--task", "goto", "--seeds", "219:221"]
    assert run([*play, "-o", "train"]) == 2
    assert "seed 219 of babyai goto is reserved for evaluation" in capsys.readouterr().err
    assert run([*play, "-o", "eval", "--purpose", "eval"]) == 0
    assert run(["leak", "eval"]) == 1
    assert "episode of a reserved world" in capsys.readouterr().err
