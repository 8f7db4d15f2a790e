-- The tables of TensorZero 2026.6.0 in Postgres that trajkit reads, with the columns and the indexes that matter
-- to a reader. What is said of an inference lies in two tables: the narrow one in partitions of a month, its
-- payload in partitions of a day, which are dropped sooner.

CREATE SCHEMA tensorzero;

CREATE TABLE tensorzero.chat_inferences (
    id uuid NOT NULL,
    function_name text NOT NULL,
    variant_name text NOT NULL,
    episode_id uuid NOT NULL,
    processing_time_ms integer,
    ttft_ms integer,
    tags jsonb NOT NULL DEFAULT '{}',
    snapshot_hash bytea,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

CREATE TABLE tensorzero.chat_inference_data (
    id uuid NOT NULL,
    input jsonb NOT NULL,
    output jsonb NOT NULL,
    inference_params jsonb NOT NULL,
    extra_body jsonb NOT NULL DEFAULT '[]',
    dynamic_tools jsonb NOT NULL DEFAULT '[]',
    dynamic_provider_tools jsonb NOT NULL DEFAULT '[]',
    allowed_tools jsonb,
    tool_choice jsonb,
    parallel_tool_calls boolean,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

CREATE TABLE tensorzero.json_inferences (
    id uuid NOT NULL,
    function_name text NOT NULL,
    variant_name text NOT NULL,
    episode_id uuid NOT NULL,
    processing_time_ms integer,
    ttft_ms integer,
    tags jsonb NOT NULL DEFAULT '{}',
    snapshot_hash bytea,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

CREATE TABLE tensorzero.json_inference_data (
    id uuid NOT NULL,
    input jsonb NOT NULL,
    output jsonb NOT NULL,
    output_schema jsonb NOT NULL,
    inference_params jsonb NOT NULL,
    extra_body jsonb NOT NULL DEFAULT '[]',
    auxiliary_content jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

CREATE TABLE tensorzero.model_inferences (
    id uuid NOT NULL,
    inference_id uuid NOT NULL,
    input_tokens integer,
    output_tokens integer,
    response_time_ms integer,
    model_name text NOT NULL,
    model_provider_name text NOT NULL,
    ttft_ms integer,
    cached boolean NOT NULL DEFAULT false,
    finish_reason text,
    snapshot_hash bytea,
    created_at timestamptz NOT NULL,
    cost numeric(18, 9),
    provider_cache_read_input_tokens integer,
    provider_cache_write_input_tokens integer,
    function_name text,
    variant_name text,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

CREATE TABLE tensorzero.model_inference_data (
    id uuid NOT NULL,
    raw_request text NOT NULL,
    raw_response text NOT NULL,
    system text,
    input_messages jsonb NOT NULL,
    output jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

CREATE INDEX ON tensorzero.chat_inferences (episode_id);
CREATE INDEX ON tensorzero.chat_inferences (function_name, variant_name, episode_id);
CREATE INDEX ON tensorzero.json_inferences (episode_id);
CREATE INDEX ON tensorzero.json_inferences (function_name, variant_name, episode_id);
CREATE INDEX ON tensorzero.model_inferences (inference_id, id);

CREATE TABLE tensorzero.chat_inferences_2026_02 PARTITION OF tensorzero.chat_inferences
    FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE tensorzero.json_inferences_2026_02 PARTITION OF tensorzero.json_inferences
    FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE tensorzero.json_inferences_2026_03 PARTITION OF tensorzero.json_inferences
    FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
CREATE TABLE tensorzero.model_inferences_2026_02 PARTITION OF tensorzero.model_inferences
    FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE tensorzero.chat_inference_data_2026_02_25 PARTITION OF tensorzero.chat_inference_data
    FOR VALUES FROM ('2026-02-25') TO ('2026-02-26');
CREATE TABLE tensorzero.json_inference_data_2026_02_25 PARTITION OF tensorzero.json_inference_data
    FOR VALUES FROM ('2026-02-25') TO ('2026-02-26');
CREATE TABLE tensorzero.json_inference_data_2026_02_26 PARTITION OF tensorzero.json_inference_data
    FOR VALUES FROM ('2026-02-26') TO ('2026-02-27');
CREATE TABLE tensorzero.model_inference_data_2026_02_25 PARTITION OF tensorzero.model_inference_data
    FOR VALUES FROM ('2026-02-25') TO ('2026-02-26');
CREATE TABLE tensorzero.chat_inferences_default PARTITION OF tensorzero.chat_inferences DEFAULT;
CREATE TABLE tensorzero.json_inferences_default PARTITION OF tensorzero.json_inferences DEFAULT;
CREATE TABLE tensorzero.model_inferences_default PARTITION OF tensorzero.model_inferences DEFAULT;
CREATE TABLE tensorzero.chat_inference_data_default PARTITION OF tensorzero.chat_inference_data DEFAULT;
CREATE TABLE tensorzero.json_inference_data_default PARTITION OF tensorzero.json_inference_data DEFAULT;
CREATE TABLE tensorzero.model_inference_data_default PARTITION OF tensorzero.model_inference_data DEFAULT;

CREATE TABLE tensorzero.float_metric_feedback (
    id uuid PRIMARY KEY,
    target_id uuid NOT NULL,
    metric_name text NOT NULL,
    value double precision NOT NULL,
    tags jsonb NOT NULL DEFAULT '{}',
    snapshot_hash bytea,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tensorzero.boolean_metric_feedback (
    id uuid PRIMARY KEY,
    target_id uuid NOT NULL,
    metric_name text NOT NULL,
    value boolean NOT NULL,
    tags jsonb NOT NULL DEFAULT '{}',
    snapshot_hash bytea,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tensorzero.comment_feedback (
    id uuid PRIMARY KEY,
    target_id uuid NOT NULL,
    target_type text NOT NULL CHECK (target_type IN ('inference', 'episode')),
    value text NOT NULL,
    tags jsonb NOT NULL DEFAULT '{}',
    snapshot_hash bytea,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tensorzero.demonstration_feedback (
    id uuid PRIMARY KEY,
    inference_id uuid NOT NULL,
    value jsonb NOT NULL,
    tags jsonb NOT NULL DEFAULT '{}',
    snapshot_hash bytea,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX ON tensorzero.float_metric_feedback (metric_name, target_id);
CREATE INDEX ON tensorzero.float_metric_feedback (target_id);
CREATE INDEX ON tensorzero.boolean_metric_feedback (metric_name, target_id);
CREATE INDEX ON tensorzero.boolean_metric_feedback (target_id);
CREATE INDEX ON tensorzero.comment_feedback (target_id);
CREATE INDEX ON tensorzero.demonstration_feedback (inference_id);

CREATE TABLE tensorzero.config_snapshots (
    hash bytea PRIMARY KEY,
    config text NOT NULL,
    extra_templates jsonb NOT NULL DEFAULT '{}',
    tensorzero_version text NOT NULL,
    tags jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE tensorzero.workflow_evaluation_run_episodes (
    episode_id uuid PRIMARY KEY,
    run_id uuid NOT NULL,
    variant_pins jsonb NOT NULL DEFAULT '{}',
    task_name text,
    tags jsonb NOT NULL DEFAULT '{}',
    snapshot_hash bytea,
    staled_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
