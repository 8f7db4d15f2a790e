-- The columns of a store, version 1. Generated from trajkit/store/layout.py by `make docs`.
-- Types are DuckDB's. In Parquet JSON is the logical type JSON, TIMESTAMPTZ UTC microseconds.
-- Null means unknown. `not in the digest` marks what the content digest leaves out.

CREATE TABLE episodes (
    -- Unique in a store; TensorZero's are UUIDv7.
    "episode_id" VARCHAR,
    -- Kind of the source, such as `tensorzero-clickhouse` or `rollout`. (not in the digest)
    "source" VARCHAR,
    -- The environment, such as `babyai`; null when unknown.
    "env_id" VARCHAR,
    -- The task within the environment.
    "task" VARCHAR,
    -- Seed of the initial state.
    "seed" BIGINT,
    -- Hash of the complete initial state and mission, computed by the environment; null when unknown.
    "initial_state_hash" VARCHAR,
    -- Purpose of the episode. Models never train on evaluation ones.
    "purpose" VARCHAR,
    -- The functions of its steps, sorted.
    "function_names" VARCHAR[],
    -- The variants of its steps, sorted.
    "variant_names" VARCHAR[],
    -- Time of its first request.
    "started_at" TIMESTAMPTZ,
    -- Time of its last answer.
    "ended_at" TIMESTAMPTZ,
    -- Number of its rows in `steps`.
    "n_steps" BIGINT,
    -- Outcome of the episode.
    "outcome" VARCHAR,
    -- Sum of the rewards of its steps; null when any reward is unknown.
    "total_reward" DOUBLE,
    -- Latest value of each metric of the whole episode.
    -- One field per metric of this level, DOUBLE or BOOLEAN; without any, no such column:
    -- metrics STRUCT(...),
    -- Sum over its steps; null when a step's is unknown.
    "n_input_tokens" BIGINT,
    -- Sum over its steps; null when a step's is unknown.
    "n_output_tokens" BIGINT,
    -- Sum over its steps; null when a step's is unknown. (not in the digest)
    "cost_usd" DOUBLE,
    -- Tags of its inferences; for each key the first value.
    "tags" JSON,
    -- Place of the episode in its source. (not in the digest)
    "origin" JSON,
    -- Digest of the episode with its steps and its feedback. (not in the digest)
    "content_hash" VARCHAR
);

CREATE TABLE steps (
    -- The episode that it belongs to.
    "episode_id" VARCHAR,
    -- Position in the episode, from 0, without gaps.
    "step_index" BIGINT,
    -- Id of the inference; null when the service gave none.
    "inference_id" VARCHAR,
    -- Name of the gateway's function.
    "function_name" VARCHAR,
    -- Name of the gateway's variant.
    "variant_name" VARCHAR,
    -- Name of the model, as the gateway calls it.
    "model_name" VARCHAR,
    -- How many messages the prompt shares with the start of (prompt + answer) of the previous step.
    "n_prompt_kept" BIGINT,
    -- The other messages of the prompt; null when the prompt is unknown.
    "messages" JSON,
    -- Tools the model could call, as `{name, description, parameters, strict}`; null if unknown or none.
    "tools" JSON,
    -- The answer of the model; null when no model answered.
    "completion" JSON,
    -- The structured input as the gateway stored it, with template arguments; null if it adds nothing to the prompt. (not in the digest)
    "input" JSON,
    -- Text that the environment showed before the action.
    "observation" VARCHAR,
    -- The action in the answer: a text or an object; null when the answer has none.
    "action" JSON,
    -- The action that the environment executed; null when unknown.
    "action_executed" VARCHAR,
    -- Whether the action is one of the environment; null when unknown.
    "action_valid" BOOLEAN,
    -- Reward for this action; null when unknown, which is not 0.
    "reward" DOUBLE,
    -- Whether the environment ended with this action; null when unknown.
    "terminated" BOOLEAN,
    -- Whether the episode was cut off after this action (step limit); null when unknown.
    "truncated" BOOLEAN,
    -- Latest value of each metric of this step.
    -- One field per metric of this level, DOUBLE or BOOLEAN; without any, no such column:
    -- metrics STRUCT(...),
    -- A better answer for this step, in the shape of the function's output.
    "demonstration" JSON,
    -- Number of prompt tokens, as the provider counted them.
    "n_input_tokens" BIGINT,
    -- Number of answer tokens, as the provider counted them.
    "n_output_tokens" BIGINT,
    -- Cost of the call in US dollars. (not in the digest)
    "cost_usd" DOUBLE,
    -- Seconds from the request to the last token.
    "latency_s" DOUBLE,
    -- Why the model stopped, such as `stop` or `length`.
    "finish_reason" VARCHAR,
    -- Whether the answer came from the gateway's cache.
    "cached" BOOLEAN,
    -- Time of the request.
    "started_at" TIMESTAMPTZ,
    -- Weight of this answer in training: 1 to learn it, 0 for context only, or another real number.
    "loss_weight" DOUBLE,
    -- Why `loss_weight` is 0; null when it is not.
    "mask_reason" VARCHAR,
    -- Hash (hexadecimal) of the gateway's configuration at that time. (not in the digest)
    "snapshot_hash" VARCHAR,
    -- Other data of the source. (not in the digest)
    "extra" JSON,
    -- Token ids of the prompt that the model read; null when unknown.
    "prompt_token_ids" BIGINT[],
    -- Token ids of the answer as sampled, the one that ended it included; null when unknown.
    "completion_token_ids" BIGINT[],
    -- Natural-log probability of each answer token under the distribution it was drawn from, after temperature, top-p and grammar mask (0 at temperature 0); null when unknown.
    "logprobs" DOUBLE[],
    -- Version of the policy's weights; null when unknown.
    "model_version" VARCHAR,
    -- Name of the agent; null when there is only one.
    "agent_name" VARCHAR,
    -- Step that this step continues or was called by; null for the previous step.
    "parent_step" BIGINT,
    -- Actions that were available; null when unknown.
    "legal_actions" VARCHAR[],
    -- Other data of the environment.
    "info" JSON
);

CREATE TABLE feedback (
    -- UUIDv7 of the feedback; the largest id is the latest.
    "feedback_id" VARCHAR,
    -- The episode, or the episode of the step.
    "episode_id" VARCHAR,
    -- The inference of the step; null for feedback on the whole episode.
    "inference_id" VARCHAR,
    -- The type of the value.
    "kind" VARCHAR,
    -- Name of the metric; `comment` or `demonstration` for feedback of these kinds.
    "metric_name" VARCHAR,
    -- A number, a boolean, a text, or the demonstrated answer.
    "value" JSON,
    -- Tags of the feedback.
    "tags" JSON,
    -- The time of the feedback, from its id.
    "created_at" TIMESTAMPTZ
);
