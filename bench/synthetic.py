"""A TensorZero database of any size, made inside ClickHouse: JSON inferences, model calls and feedback."""

from __future__ import annotations

from typing import Any

BASE_MS = 1_767_225_600_000  # 2026-01-01, so that the ids are in the past
STEPS_PER_EPISODE = 20

PHRASES = (
    "a wall 4 steps forward",
    "a wall 2 steps left",
    "a grey box 1 step right and 3 steps forward",
    "a locked blue door 5 steps forward",
    "a purple key 2 steps left and 1 step forward",
    "You carry a red ball",
    "an open yellow door 1 step right",
    "a green ball 6 steps forward",
)
_SYSTEM = (
    "You steer a robot through a small world of square tiles. Your mission: go to the {} box. Choose one"
    " action at a time: turn left, turn right, go forward, pick up, drop, toggle. Distances count tiles"
    " from where you stand, in the direction you face. You do not see behind you or through walls."
)
_ASK = "Answer with one JSON object and nothing else, with the fields thinking and action."

_SNAPSHOT = "(SELECT if(count() = 0, NULL, any(hash)) FROM ConfigSnapshot)"
"""The configuration that made the schema: a gateway notes on every row which one it had."""


def uuid7(ms: str, salt: str) -> str:
    """SQL for a UUIDv7 at a millisecond, its random part hashed from `salt`."""
    when = f"leftPad(lower(hex(toUInt64({ms}))), 12, '0')"
    noise = f"leftPad(lower(hex(sipHash128({salt}))), 32, '0')"
    return (
        f"toUUID(concat(substring({when}, 1, 8), '-', substring({when}, 9, 4),"
        f" '-7', substring({noise}, 1, 3), '-8', substring({noise}, 4, 3), '-', substring({noise}, 7, 12)))"
    )


def _seen(step: str) -> str:
    """SQL for what the agent saw at a step: three lines that hardly ever repeat."""
    phrases = "[" + ", ".join(f"'{phrase}'" for phrase in PHRASES) + "]"
    return (
        f"arrayStringConcat(arrayMap(x -> concat({phrases}[sipHash64({step}, x) % {len(PHRASES)} + 1],"
        f" ', tile ', toString(sipHash64(x, {step}) % 1000)), range(3)), '\\n')"
    )


def fill(client: Any, *, n_inferences: int, n_history: int = 4) -> None:
    """Insert `n_inferences` in episodes of 20 steps, a model call each, with two float metrics per episode.

    The rows have the shape of recorded BabyAI rows of an agent with its history in the prompt, and about
    2.3 kB of text each: in the input, in the rendered messages, and in the answer.

    Args:
        client: A clickhouse-connect client on a database that has TensorZero's schema.
        n_inferences: How many.
        n_history: Steps shown back in each prompt.
    """
    n_episodes = n_inferences // STEPS_PER_EPISODE
    episode = f"intDiv(number, {STEPS_PER_EPISODE})"
    step = f"number % {STEPS_PER_EPISODE}"
    episode_ms = f"({BASE_MS} + {episode} * 60000)"
    inference = uuid7(f"{episode_ms} + ({step}) * 1000 + 1", "number, 1")
    episode_id = uuid7(episode_ms, f"{episode}, 2")
    mission = f"concat('go to the grey box number ', toString({episode}))"
    answer = 'concat(\'{"thinking":"I see it, step \', toString(number), \'","action":"go forward"}\')'
    history = (
        "arrayStringConcat(arrayMap(back -> concat('Observation: ', "
        f"{_seen('(number + back)')}, '\\nAction: go forward'), range({n_history})), '\\n\\n')"
    )
    system = "concat('" + _SYSTEM.replace("{}", f"', toString({episode}), '") + "')"
    user = f"concat({history}, '\\n\\nObservation: ', {_seen('number')}, '\\n\\n{_ASK}')"
    tags = (
        f"map('trajkit.env','babyai','trajkit.task','goto','trajkit.seed',toString({episode}),"
        f"'trajkit.purpose','train','trajkit.step',toString({step}))"
    )
    client.command(f"""
        INSERT INTO JsonInference (id, function_name, variant_name, episode_id, input, output, output_schema,
            inference_params, processing_time_ms, tags, extra_body, auxiliary_content, snapshot_hash)
        SELECT {inference}, 'act', 'baseline', {episode_id},
            concat('{{"system":{{"mission":', toJSONString({mission}), '}},"messages":[{{"role":"user",',
                '"content":[{{"type":"template","name":"user","arguments":{{"observation":',
                toJSONString({_seen("number")}), ',"history":', toJSONString({history}), '}}}}]}}]}}'),
            concat('{{"raw":', toJSONString({answer}), ',"parsed":', {answer}, '}}'),
            '{{"type":"object"}}', '{{"chat_completion":{{}}}}', 20, {tags}, '[]', '[]', {_SNAPSHOT}
        FROM numbers({n_inferences})
    """)
    client.command(f"""
        INSERT INTO ModelInference (id, inference_id, raw_request, raw_response, model_name,
            model_provider_name, input_tokens, output_tokens, response_time_ms, system, input_messages,
            output, finish_reason, snapshot_hash)
        SELECT {uuid7(f"{episode_ms} + ({step}) * 1000 + 2", "number, 3")}, {inference},
            concat('{{"messages":', toJSONString({user}), '}}'),
            concat('{{"choices":', {answer}, '}}'),
            'agent', 'stand_in', 200, 20, 19, {system},
            concat('[{{"role":"user","content":[{{"type":"text","text":',
                toJSONString({user}), '}}]}}]'),
            concat('[{{"type":"text","text":', toJSONString({answer}), '}}]'), 'stop', {_SNAPSHOT}
        FROM numbers({n_inferences})
    """)
    target = uuid7(f"({BASE_MS} + number * 60000)", "number, 2")
    for salt, metric in ((4, "episode_return"), (5, "progression")):
        client.command(f"""
            INSERT INTO FloatMetricFeedback (id, target_id, metric_name, value, tags)
            SELECT {uuid7(f"{BASE_MS} + number * 60000 + 50000", f"number, {salt}")}, {target}, '{metric}',
                toFloat32((sipHash64(number, {salt}) % 1000) / 1000), map()
            FROM numbers({n_episodes})
        """)
