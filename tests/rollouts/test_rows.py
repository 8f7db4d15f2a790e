from datetime import UTC, datetime

from trajkit._core.ids import uuid7
from trajkit.rollouts.gateway.rows import Missing, check_rows
from trajkit.schema import Episode, Feedback, FeedbackKind, Transition

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def episode(n_steps=3, n_feedback=2, function="act") -> Episode:
    episode_id = uuid7()
    steps = tuple(
        Transition(step_index=i, inference_id=uuid7(), function_name=function) for i in range(n_steps)
    )
    feedback = tuple(
        Feedback(
            feedback_id=uuid7(),
            episode_id=episode_id,
            kind=FeedbackKind.FLOAT,
            metric_name=f"m{i}",
            value=1.0,
            created_at=NOW,
        )
        for i in range(n_feedback)
    )
    return Episode(episode_id=episode_id, source="rollout", steps=steps, feedback=feedback)


def rows(one: Episode) -> set[str]:
    return {step.inference_id for step in one.steps} | {item.feedback_id for item in one.feedback}


def test_rows_that_are_not_there_are_counted_by_episode_and_kind():
    whole, half, gone = episode(), episode(), episode()
    kept = {whole.episode_id: rows(whole), half.episode_id: {half.steps[1].inference_id}}
    checked = check_rows([whole, half, gone], lambda ids: kept, patience_s=0)
    assert checked.missing == [Missing(half.episode_id, 2, 2), Missing(gone.episode_id, 3, 2)]
    assert checked.extra == []


def test_rows_that_come_late_are_waited_for_and_only_those_are_asked_for_again():
    early, late = episode(), episode()
    asked = []

    def stored(ids):
        asked.append(list(ids))
        return {one.episode_id: rows(one) for one in ([early] if len(asked) < 3 else [early, late])}

    assert check_rows([early, late], stored, patience_s=5).missing == []
    assert asked == [[early.episode_id, late.episode_id], [late.episode_id], [late.episode_id]]


def test_an_answer_that_was_lost_on_its_way_and_asked_for_again_is_found():
    one = episode()
    checked = check_rows([one], lambda ids: {one.episode_id: rows(one) | {uuid7()}}, patience_s=0)
    assert (checked.missing, checked.extra) == ([], [one.episode_id])


def test_calls_that_no_gateway_made_are_not_looked_for():
    one = episode(function=None, n_feedback=0)
    assert check_rows([one], lambda ids: {}, patience_s=0).missing == []


def test_many_episodes_are_asked_for_in_batches():
    many, sizes = [episode(n_steps=1) for _ in range(450)], []

    def stored(ids):
        sizes.append(len(ids))
        return {one.episode_id: rows(one) for one in many}

    assert check_rows(iter(many), stored, patience_s=0).missing == []
    assert sizes == [200, 200, 50]
