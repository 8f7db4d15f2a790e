import subprocess
import sys
from pathlib import Path

from trajkit.rollout.ids import uuid7
from trajkit.rollout.spool import Spool
from trajkit.schema import Episode, Transition, message


def episode(n_steps: int) -> Episode:
    steps = tuple(
        Transition(step_index=i, inference_id=uuid7(), observation="a wall\n\u2028é") for i in range(n_steps)
    )
    return Episode(episode_id=uuid7(), source="rollout", steps=steps)


def test_episodes_come_back_as_they_went_in():
    kept = [episode(3), episode(0), episode(1)]
    with Spool() as spool:
        for one in kept:
            spool.add(one)
        assert (spool.n_episodes, spool.n_steps) == (3, 4)
        assert list(spool.episodes()) == kept
        assert list(spool.episodes()) == kept


def test_prompts_are_asked_for_in_batches_and_the_missing_counted():
    batches = []

    def prompts(inference_ids):
        batches.append(len(inference_ids))
        return {one: (message("user", one),) for one in inference_ids if one != missing}

    kept = [episode(900) for _ in range(5)]
    missing = kept[4].steps[7].inference_id
    with Spool() as spool:
        for one in kept:
            spool.add(one)
        back = list(spool.episodes(prompts))
    assert batches == [2700, 1800]
    assert spool.n_without_prompt == 1
    assert back[4].steps[7].messages is None
    assert back[4].steps[8].messages == (message("user", kept[4].steps[8].inference_id),)


def test_a_full_disk_is_an_error_of_ours_that_names_the_folder(tmp_path):
    # a limit on the size of a file makes writes fail for real, in a process of its own
    script = (
        "import resource, signal\n"
        "from trajkit.errors import StoreError\n"
        "from trajkit.rollout.spool import Spool\n"
        "from trajkit.schema import Episode\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    with Spool() as spool:\n"
        "        for n in range(1000):\n"
        "            spool.add(Episode(episode_id=str(n), source='x' * 1000))\n"
        "except StoreError as error:\n"
        "    print(error.message)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={"TMPDIR": str(tmp_path)},
    )
    assert done.stdout.startswith(f"{tmp_path} cannot hold the episodes until the store is written")
    assert list(tmp_path.iterdir()) == []
