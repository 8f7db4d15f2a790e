"""Collect a user's notes on an episode and its steps: rewards, metrics, outcome, and feedback."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from trajkit.schema import Feedback, FeedbackKind, Transition
from trajkit.schema.base import JsonObject
from trajkit.schema.episode import MetricValue


class Notes:
    """The notes on one episode, in the order in which they were written."""

    def __init__(self, episode_id: str) -> None:
        self._episode_id = episode_id
        self._by_step: dict[str | None, JsonObject] = defaultdict(dict)
        self._step_metrics: dict[str | None, dict[str, MetricValue]] = defaultdict(dict)
        self._n_by_step: dict[str | None, int] = defaultdict(int)
        self.metrics: dict[str, MetricValue] = {}
        """The latest value of each metric of the episode."""
        self.outcome: str | None = None
        """The user's outcome; None when there is none."""
        self.feedback: list[Feedback] = []
        self.n_taken = 0
        """Number of notes."""
        self.n_lost = 0
        """Notes on a step that does not exist."""

    @property
    def is_any(self) -> bool:
        """Whether there is a note on a step, feedback or an outcome."""
        return bool(self._n_by_step or self.feedback or self.outcome)

    def take(self, note: dict[str, Any]) -> None:
        """Add a record of the kind `note`."""
        step, value = note.get("step"), note["value"]
        about_step = note["is_on_step"]
        self.n_taken += 1
        if about_step:
            self._n_by_step[step] += 1
        match note["what"]:
            case "outcome":
                self.outcome = value
            case "reward":
                self._by_step[step]["reward"] = (self._by_step[step].get("reward") or 0.0) + value
            case "step":
                self._by_step[step].update(value)
            case "metric":
                target = self._step_metrics[step] if about_step else self.metrics
                target[note["name"]] = value
                self._feed(
                    note,
                    FeedbackKind.BOOLEAN if isinstance(value, bool) else FeedbackKind.FLOAT,
                    note["name"],
                )
            case "comment":
                self._feed(note, FeedbackKind.COMMENT, "comment")
            case "demonstration":
                self._by_step[step]["demonstration"] = value
                self._feed(note, FeedbackKind.DEMONSTRATION, "demonstration")

    def on_steps(self, steps: list[Transition]) -> list[Transition]:
        """Return the steps with their notes, and count the notes on other steps."""
        found = {step.inference_id for step in steps}
        self.n_lost = sum(n for step, n in self._n_by_step.items() if step not in found)
        self.feedback = [
            one for one in self.feedback if one.inference_id is None or one.inference_id in found
        ]
        self.feedback.sort(key=lambda one: one.feedback_id)
        return [self._on_step(step) for step in steps]

    def _on_step(self, step: Transition) -> Transition:
        facts = self._by_step.get(step.inference_id, {})
        metrics = self._step_metrics.get(step.inference_id, {})
        if not facts and not metrics:
            return step
        said = {name: getattr(step, name) for name in Transition.model_fields}
        if step.reward is not None and isinstance(late := facts.get("reward"), float):
            facts = {**facts, "reward": step.reward + late}
        return Transition.model_validate({**said, **facts, "metrics": {**step.metrics, **metrics}})

    def _feed(self, note: dict[str, Any], kind: FeedbackKind, name: str) -> None:
        self.feedback.append(
            Feedback(
                feedback_id=note["id"],
                episode_id=self._episode_id,
                inference_id=note.get("step") if note["is_on_step"] else None,
                kind=kind,
                metric_name=name,
                value=note["value"],
                created_at=note["at"],
            )
        )
