-- The table of Langfuse 4 (packages/shared/clickhouse/scripts/dev-tables.sh); `scores` is that of version 3.
CREATE TABLE events_full (
    project_id String, trace_id String, span_id String, parent_span_id String,
    start_time DateTime64(6), end_time Nullable(DateTime64(6)),
    name String, type LowCardinality(String), environment LowCardinality(String) DEFAULT 'default',
    version String, release String, trace_name String, user_id String, session_id String, tags Array(String),
    level LowCardinality(String), status_message String, completion_start_time Nullable(DateTime64(6)),
    is_app_root Bool DEFAULT false, bookmarked Bool DEFAULT false, public Bool DEFAULT false,
    prompt_id String, prompt_name String, prompt_version Nullable(UInt16),
    model_id String, provided_model_name String, model_parameters String,
    provided_usage_details Map(LowCardinality(String), UInt64), usage_details Map(LowCardinality(String), UInt64),
    provided_cost_details Map(LowCardinality(String), Decimal(18,12)),
    cost_details Map(LowCardinality(String), Decimal(18,12)),
    calculated_input_cost Decimal(18, 12) MATERIALIZED arraySum(mapValues(mapFilter(x -> positionCaseInsensitive(x.1, 'input') > 0, cost_details))),
    calculated_output_cost Decimal(18, 12) MATERIALIZED arraySum(mapValues(mapFilter(x -> positionCaseInsensitive(x.1, 'output') > 0, cost_details))),
    total_cost Decimal(18, 12) ALIAS cost_details['total'],
    usage_pricing_tier_id Nullable(String), usage_pricing_tier_name Nullable(String),
    tool_definitions Map(String, String), tool_calls Array(String), tool_call_names Array(String),
    input String CODEC(ZSTD(3)), input_length UInt64 MATERIALIZED lengthUTF8(input),
    output String CODEC(ZSTD(3)), output_length UInt64 MATERIALIZED lengthUTF8(output),
    metadata_names Array(String), metadata_values Array(String),
    experiment_id String, experiment_name String, experiment_metadata_names Array(String),
    experiment_metadata_values Array(String), experiment_description String, experiment_dataset_id String,
    experiment_item_id String, experiment_item_version Nullable(DateTime64(6)),
    experiment_item_expected_output String, experiment_item_metadata_names Array(String),
    experiment_item_metadata_values Array(String), experiment_item_root_span_id String,
    source LowCardinality(String), service_name String, service_version String, scope_name String,
    scope_version String, telemetry_sdk_language LowCardinality(String), telemetry_sdk_name String,
    telemetry_sdk_version String, blob_storage_file_path String, event_bytes UInt64,
    created_at DateTime64(6) DEFAULT now(), updated_at DateTime64(6) DEFAULT now(), event_ts DateTime64(6),
    is_deleted UInt8,
    INDEX idx_span_id span_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_fts_input_low lower(input) TYPE text(tokenizer = splitByNonAlpha),
    INDEX idx_fts_output_low lower(output) TYPE text(tokenizer = splitByNonAlpha),
    INDEX idx_fts_metadata_values metadata_values TYPE text(tokenizer = splitByNonAlpha),
    INDEX idx_fts_metadata_names metadata_names TYPE text(tokenizer = splitByNonAlpha)
) ENGINE = ReplacingMergeTree(event_ts, is_deleted) PARTITION BY toYYYYMM(start_time)
PRIMARY KEY (project_id, toStartOfMinute(start_time), xxHash32(trace_id))
ORDER BY (project_id, toStartOfMinute(start_time), xxHash32(trace_id), span_id, start_time)
SAMPLE BY xxHash32(trace_id)
SETTINGS index_granularity_bytes = '64Mi', merge_max_block_size_bytes = '64Mi', enable_block_number_column = 1,
    enable_block_offset_column = 1, prewarm_mark_cache = 1, prewarm_primary_key_cache = 1,
    enable_full_text_index = 1
