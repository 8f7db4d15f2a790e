from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trajkit.environments import environment_info, known, make, typed_environment
from trajkit.environments.base import ActionRule, HasExpert, step_limit
from trajkit.errors import RequestError, RolloutError

Module = Callable[[str], str]


def test_two_methods_are_an_environment(module: Module) -> None:
    spec = f"{module('')}:Steps"
    info = typed_environment(spec)

    assert info[:4] == (spec, ("default",), None, "episode_return > 0")
    world = info.make("default")
    assert (world.env_id, world.task) == (spec, "default")
    assert world.reset(1)[:2] == ("Take five steps.", "You stand at 137.")
    assert world.step("go")[:4] == ("You stand at 138.", 0.0, False, False)
    assert (world.legal_actions(), world.statistics(), step_limit(world)) == ((), {}, None)
    assert not isinstance(world, HasExpert)
    world.close()


def test_a_class_says_its_name_tasks_rule_and_success(module: Module) -> None:
    name = module(
        """
        from trajkit.environments.base import ActionRule

        class Mine(Steps):
            env_id = "mine"
            tasks = ["far", "near"]
            action_rule = ActionRule(("go", "stay"), "stay")
            success = "at_goal > 0.5"

            def __init__(self, task, speed: int = 1):
                self.task, self.speed = task, speed

            def reset(self, seed):
                return f"Go {self.task}.", f"Speed {self.speed}."

            def statistics(self):
                return {"at_goal": 0}
        """
    )
    info = typed_environment(f"{name}:Mine", {"speed": "3"})

    assert info[:4] == ("mine", ("far", "near"), ActionRule(("go", "stay"), "stay"), "at_goal > 0.5")
    assert info.make("near").reset(0)[:2] == ("Go near.", "Speed 3.")


def test_a_function_that_makes_one_is_an_environment(module: Module) -> None:
    name = module("def build(size: float, task: str = 'only'):\n    return Steps()\n")
    info = typed_environment(f"{name}:build", {"size": "2.5"})

    assert info.tasks == ("only",)
    assert info.make("only").reset(0).mission == "Take five steps."
    with pytest.raises(RequestError, match=f"{name}:build needs the setting 'size'"):
        typed_environment(f"{name}:build")


def test_a_literal_says_which_tasks_there_are(module: Module) -> None:
    name = module(
        """
        from typing import Literal

        class Mine(Steps):
            def __init__(self, task: Literal["left", "right"]):
                pass
        """
    )
    assert typed_environment(f"{name}:Mine").tasks == ("left", "right")


def test_annotations_that_are_text_and_dataclasses_are_understood(folder: Path) -> None:
    (folder / "written_later.py").write_text(
        textwrap.dedent(
            """
            from __future__ import annotations
            from dataclasses import dataclass
            from typing import Literal

            @dataclass
            class Mine:
                task: Literal["left", "right"]
                size: int | None = None

                def reset(self, seed: int):
                    return f"Go {self.task}.", f"{self.size!r}"

                def step(self, text):
                    return "end", 0.0, True, False
            """
        ),
        encoding="utf-8",
    )
    info = typed_environment("written_later:Mine", {"size": "3"})

    assert info.tasks == ("left", "right")
    assert info.make("right").reset(0)[:2] == ("Go right.", "3")


def test_an_environment_info_is_one_and_its_make_takes_the_settings(module: Module) -> None:
    name = module(
        """
        from trajkit.environments.base import EnvironmentInfo

        def build(task, speed: int = 1):
            steps = Steps()
            steps.max_steps = speed
            return steps

        INFO = EnvironmentInfo("mine", ("a", "b"), None, "episode_return >= 1", build)

        def many(n: int) -> EnvironmentInfo:
            return INFO._replace(tasks=tuple(f"level {i}" for i in range(n)))
        """
    )
    info = typed_environment(f"{name}:INFO", {"speed": "4"})
    assert info[:2] == ("mine", ("a", "b"))
    assert step_limit(info.make("b")) == 4
    assert info.make("b").reset(0).mission == "Take five steps."

    levels = typed_environment(f"{name}:many", {"n": "3"})
    assert levels.tasks == ("level 0", "level 1", "level 2")
    assert levels.make("level 2").reset(0).mission == "Take five steps."


def test_what_is_declared_must_be_meant(module: Module) -> None:
    declared = {
        "tasks = 'easy'": r"tasks is str, not a tuple of names",
        "tasks = ()": r"tasks are \(\)",
        "tasks = ('a', 'a')\n    def __init__(self, task): pass": r"tasks are \('a', 'a'\).*each once",
        "tasks = ('all',)": r"none of them 'all'",
        "tasks = ('a', 'b')": r"has 2 tasks, but no parameter 'task'",
        "tasks = (3,)": r"tasks are \(3,\)",
        "env_id = 'babyai'": r"env_id cannot be 'babyai' \(a name other than babyai",
        "env_id = ''": r"env_id cannot be ''",
        "env_id = 3": r"env_id cannot be 3",
        "success = 'solved'": r"success: 'solved' is not METRIC OPERATOR NUMBER",
        "success = 1": r"success is 1",
        "action_rule = ('a', 'b')": r"action_rule is \('a', 'b'\)",
        "action_rule = ActionRule(('a', 'b'), 'c')": r"the default one of the actions",
        "action_rule = ActionRule(('a', ' '), 'a')": r"action_rule is",
        "def __init__(self, task): pass": r"has a parameter 'task', but declares no tasks",
    }
    lines = ["from trajkit.environments.base import ActionRule\n"]
    lines += [f"class Bad{i}(Steps):\n    {line}\n" for i, line in enumerate(declared)]
    name = module("\n".join(lines))

    for i, message in enumerate(declared.values()):
        with pytest.raises(RequestError, match=f"{name}:Bad{i}.*{message}"):
            typed_environment(f"{name}:Bad{i}")


def test_the_task_is_chosen_among_those_there_are_and_is_no_setting(module: Module) -> None:
    name = module("class Mine(Steps):\n    tasks = ('a',)\n    def __init__(self, task): pass\n")

    with pytest.raises(RequestError, match=r"no task 'b' in .*:Mine \(tasks: a\)"):
        make(f"{name}:Mine", "b")
    with pytest.raises(RequestError, match=r"the task is not a setting \(--task a\)"):
        typed_environment(f"{name}:Mine", {"task": "a"})


def test_what_makes_nothing_is_refused(module: Module) -> None:
    name = module("steps = Steps()\n\ndef info() -> 'EnvironmentInfo': ...\n")

    with pytest.raises(RequestError, match=f"{name}:steps is Steps, not a class or a function"):
        typed_environment(f"{name}:steps")
    with pytest.raises(RolloutError, match=r"task 'default'.* NoneType has no method 'reset'"):
        make(f"{name}:info", "default")


def test_an_info_that_is_promised_must_come(module: Module) -> None:
    name = module(
        "from trajkit.environments.base import EnvironmentInfo\n\ndef info() -> EnvironmentInfo: return 3\n"
    )
    with pytest.raises(RequestError, match=f"{name}:info returned int, not an EnvironmentInfo"):
        typed_environment(f"{name}:info")


def test_a_constructor_that_fails_is_named_with_its_task_and_line(module: Module) -> None:
    name = module(
        """
        class Mine(Steps):
            def __init__(self, size: int = 0):
                self.share = 1 // size
        """
    )
    with pytest.raises(
        RolloutError,
        match=rf"{name}:Mine task 'default' cannot be made: ZeroDivisionError: .* \({name}.py:\d+\)",
    ):
        make(f"{name}:Mine", "default")
    assert make(f"{name}:Mine", "default", {"size": "1"}).reset(0).mission == "Take five steps."


def test_a_known_environment_takes_no_settings() -> None:
    assert environment_info("babyai", {}).tasks[0] == "goto"
    with pytest.raises(RequestError, match="babyai takes no settings, so not 'size' either"):
        environment_info("babyai", {"size": "8"})


def test_babyai_is_known_with_its_tasks_and_rule() -> None:
    info = environment_info("babyai")

    assert "babyai" in known()
    assert info.tasks == ("goto", "pickup", "open", "putnext", "pick_up_seq_go_to")
    assert info.rule is not None
    assert info.rule.actions == ("turn left", "turn right", "go forward", "pick up", "drop", "toggle")
    assert info.rule.default == "go forward"
    assert info.success == "progression >= 1"
    assert make("babyai", "open").task == "open"


def test_an_unknown_name_is_answered_with_the_nearest_and_the_other_spelling() -> None:
    with pytest.raises(RequestError, match=r"no environment 'chess' \(known: babyai"):
        environment_info("chess")
    with pytest.raises(RequestError, match="no environment 'babiai'") as caught:
        environment_info("babiai")
    assert caught.value.hint == "did you mean babyai?; one of your own is written my_pkg.env:MyEnv"


def test_what_the_constructor_prints_goes_to_stderr(module: Module, capsys: Any) -> None:
    name = module("class Mine(Steps):\n    def __init__(self): print('making')\n")
    make(f"{name}:Mine", "default")

    assert capsys.readouterr() == ("", "making\n")
