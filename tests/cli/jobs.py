"""Jobs as a training leaves them, without one: records, rows and an adapter's configuration."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trajkit._core.settings import remember
from trajkit.curation.rows.file import convert
from trajkit.formats.trl import WEIGHTED
from trajkit.schema import Episode, Transition, message
from trajkit.store.dataset import open_dataset
from trajkit.store.writer import write_episodes
from trajkit.training.job import JobData, JobStatus, TuneJob, key_of
from trajkit.training.origin import origin_of
from trajkit.training.runs import Runs


def an_episode(
    name: str, *, function: str = "act", variant: str = "history_and_reasoning", seed: int = 0
) -> Episode:
    steps = tuple(
        Transition(
            step_index=number,
            messages=(message("user", f"{name} {number}"),),
            completion=message("assistant", "go"),
            function_name=function,
            variant_name=variant,
        )
        for number in range(2)
    )
    return Episode(episode_id=name, source="test", env_id="walk", task="go", seed=seed, steps=steps)


def a_store(path: str, *episodes: Episode) -> Path:
    """A store of these episodes in the working folder."""
    write_episodes(Path(path), list(episodes), kind="test")
    return Path(path)


def a_job(store: Path, *, job_id: str = "tiny", model: str | None = None, **fields: Any) -> TuneJob:
    """A finished job on a store, remembered as the last: of this machine, or of a service's model."""
    runs, data = Runs(Path("runs")), open_dataset(store)
    folder = runs.path(job_id)
    folder.mkdir(parents=True)
    made = convert(data, folder / "train.jsonl", to=WEIGHTED)
    digest = data.store.manifest.digest
    origin = origin_of(data)
    if model is None:
        (folder / "model").mkdir()
        (folder / "model" / "adapter_config.json").write_text(json.dumps({"r": 16}))
    job = TuneJob(
        **{
            "job_id": job_id,
            "key": key_of(target=job_id, method="sft", base="b", recipe={}, digests=(digest,)),
            "target": "local" if model is None else "openai",
            "base": "some/base",
            "recipe": {"seed": 7, "lora": {"r": 16, "use_dora": False}},
            "train": JobData(
                store=data.store.path,
                digest=digest,
                n_episodes=made.n_episodes,
                n_steps=made.n_steps,
                n_learned=made.n_learned,
                n_rows=made.n_rows,
                n_tokens=1,
                n_learned_tokens=1,
                longest=1,
            ),
            "function": origin.function,
            "variants": origin.variants,
            "created_at": datetime.now(UTC),
            "status": JobStatus.SUCCEEDED,
            "result": {} if model is None else {"model": model},
            "remote": {} if model is None else {"where": "https://api.openai.com/v1"},
            **fields,
        }
    )
    runs.save(job)
    remember("last_job", {"runs": str(Path("runs").absolute()), "job_id": job_id})
    return job
