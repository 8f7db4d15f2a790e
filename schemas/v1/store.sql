-- The columns of a store, version 1. Generated from trajkit/store/layout.py by `make docs`.
-- Types are DuckDB's. In Parquet JSON is the logical type JSON, TIMESTAMPTZ UTC microseconds.
-- Null means unknown. `not in the digest` marks what the content digest leaves out.

CREATE TABLE episodes (
    -- Unique in a store; TensorZero's are UUIDv7.
    "episode_id" VARCHAR,
    -- What kind of place it came from, such as `tensorzero-clickhouse` or `rollout`. (not in the digest)
    "source" VARCHAR,
    -- The environment, such as `babyai`; null when unknown.
    "env_id" VARCHAR,
    -- The task within the environment.
    "task" VARCHAR,
    -- Seed of the environment's initial state.
    "seed" BIGINT,
    -- Hash of the complete initial state and mission, computed by the environment.
    "initial_state_hash" VARCHAR,
    -- What it was played for; evaluation episodes never train.
    "purpose" VARCHAR,
    -- The functions of its steps, sorted.
    "function_names" VARCHAR[],
    -- The variants of its steps, sorted.
    "variant_names" VARCHAR[],
    -- When its first step began.
    "started_at" TIMESTAMPTZ,
    -- When its last step was answered.
    "ended_at" TIMESTAMPTZ,
    -- Number of its rows in `steps`.
    "n_steps" BIGINT,
    -- How it ended.
    "outcome" VARCHAR,
    -- Sum of the rewards of its steps; null when a reward is unknown.
    "total_reward" DOUBLE,
    -- Latest value of each metric about the whole episode.
    -- One field per metric of this level, DOUBLE or BOOLEAN; without any, no such column:
    -- metrics STRUCT(...),
    -- Sum over its steps; null when a step's is unknown.
    "n_input_tokens" BIGINT,
    -- Sum over its steps; null when a step's is unknown.
    "n_output_tokens" BIGINT,
    -- Sum over its steps; null when a step's is unknown. (not in the digest)
    "cost_usd" DOUBLE,
    -- Tags of its inferences (of the first that has the key).
    "tags" JSON,
    -- How to find it again at its source. (not in the digest)
    "origin" JSON,
    -- Digest of the episode with its steps and its feedback. (not in the digest)
    "content_hash" VARCHAR
);

CREATE TABLE steps (
    -- The episode that it belongs to.
    "episode_id" VARCHAR,
    -- Position in the episode, from 0, without gaps.
    "step_index" BIGINT,
    -- Id of the inference that gave the answer; null when no service gave one.
    "inference_id" VARCHAR,
    -- The gateway's function.
    "function_name" VARCHAR,
    -- The gateway's variant that answered.
    "variant_name" VARCHAR,
    -- The model that answered, under the gateway's name for it.
    "model_name" VARCHAR,
    -- Leading messages of the prompt that are the ones of the step before (its prompt, then its answer).
    "n_prompt_kept" BIGINT,
    -- The messages of the prompt after those; null when the prompt is unknown.
    "messages" JSON,
    -- Tools the model could call, as `{name, description, parameters, strict}`; null if unknown or none.
    "tools" JSON,
    -- What the model answered; null when no model did.
    "completion" JSON,
    -- The structured input as the gateway stored it, template arguments kept; null where it says no more than the prompt does. (not in the digest)
    "input" JSON,
    -- What the environment showed before the action, as text.
    "observation" VARCHAR,
    -- The action that the answer names: text, or an object; null when it names none.
    "action" JSON,
    -- The action that the environment carried out; null when unknown.
    "action_executed" VARCHAR,
    -- Whether the answer named an action of the environment; null when unknown.
    "action_valid" BOOLEAN,
    -- Reward the environment gave for this action; null when nobody measured it (not 0).
    "reward" DOUBLE,
    -- The environment reached an end of its own with this action; null when unknown.
    "terminated" BOOLEAN,
    -- The episode was cut off after this action (step limit); null when unknown.
    "truncated" BOOLEAN,
    -- Latest value of each metric about this step.
    -- One field per metric of this level, DOUBLE or BOOLEAN; without any, no such column:
    -- metrics STRUCT(...),
    -- The better answer that somebody gave for this step, in the function's output shape.
    "demonstration" JSON,
    -- Tokens of the prompt, as the provider counted them.
    "n_input_tokens" BIGINT,
    -- Tokens of the answer, as the provider counted them.
    "n_output_tokens" BIGINT,
    -- Price of the call in US dollars. (not in the digest)
    "cost_usd" DOUBLE,
    -- Seconds from request to last token.
    "latency_s" DOUBLE,
    -- Why the model stopped.
    "finish_reason" VARCHAR,
    -- The answer came from the gateway's cache.
    "cached" BOOLEAN,
    -- When the request began.
    "started_at" TIMESTAMPTZ,
    -- How much this answer counts in training: 1 learn it, 0 context only, or a real number.
    "loss_weight" DOUBLE,
    -- Why `loss_weight` is 0; null when it is not.
    "mask_reason" VARCHAR,
    -- The gateway's configuration at that moment (hex). (not in the digest)
    "snapshot_hash" VARCHAR,
    -- What else the source knew. (not in the digest)
    "extra" JSON,
    -- Token ids of the prompt that the model read; null when unknown.
    "prompt_token_ids" BIGINT[],
    -- Token ids of the answer as sampled, the one that ended it included; null when unknown.
    "completion_token_ids" BIGINT[],
    -- Natural-log probability of each answer token under the distribution it was drawn from, after temperature, top-p and grammar mask (0 at temperature 0); null when unknown.
    "logprobs" DOUBLE[],
    -- Version of the policy's weights; null when unknown.
    "model_version" VARCHAR,
    -- Which of several agents acted; null when there is one.
    "agent_name" VARCHAR,
    -- Step that this one branches from or was called by; null for the step before.
    "parent_step" BIGINT,
    -- Actions that were open to the agent; null when unknown.
    "legal_actions" VARCHAR[],
    -- What else the environment reported.
    "info" JSON
);

CREATE TABLE feedback (
    -- UUIDv7 of the feedback: its order decides which is the latest.
    "feedback_id" VARCHAR,
    -- The episode that it is about, or that holds the step it is about.
    "episode_id" VARCHAR,
    -- The step that it is about; null when it is about the whole episode.
    "inference_id" VARCHAR,
    -- What sort of value it is.
    "kind" VARCHAR,
    -- Name of the metric; `comment` and `demonstration` for those kinds.
    "metric_name" VARCHAR,
    -- Number, boolean, text, or the demonstrated answer.
    "value" JSON,
    -- Tags logged with it.
    "tags" JSON,
    -- When it was logged, from its id.
    "created_at" TIMESTAMPTZ
);
