-- What is known of the steps of some buckets but their prompts. Prompts and inputs of the usual shape never enter
-- DuckDB's tables, which would copy them at every turn (`late.py` makes them).
--
-- Reads: bucket_step, call, answering, unusual_answer, given_answer, step_tool, unreadable, episode_tag,
-- spooled_inference, and the variables action_path, include_invalid.
-- Makes: told, said, conversing, and continued, apart, prompted and extension (empty).

-- Each output is parsed once. What is on the right of the joins is narrow and is held, while the outputs only pass by.
CREATE OR REPLACE TEMP TABLE told AS
SELECT * EXCLUDE (found, own_answer, given_answer, actions), coalesce(given_answer, own_answer) AS answer,
    CASE WHEN given_answer IS NOT NULL THEN own_answer END AS replaced_answer,
    CASE WHEN starts_with(action_found::VARCHAR, '"') THEN action_found->>'$' END AS action_text,
    coalesce(list_contains(actions, action_text), false) AS is_listed
FROM (
    SELECT * EXCLUDE (unusual_answer, unusual_action, is_unusual, is_judged, is_known_invalid),
        CASE WHEN is_unusual THEN unusual_answer WHEN NOT is_expired THEN as_raw_answer(found[1]::VARCHAR) END AS own_answer,
        CASE WHEN is_unusual THEN unusual_action ELSE found[3] END AS action_found,
        CASE WHEN is_judged THEN is_known_invalid ELSE coalesce(found[2]::VARCHAR, 'null') = 'null' END AS is_invalid,
        NOT is_unusual AND given_answer IS NULL AS is_answer_spelled
    FROM (
        SELECT c.inference_id, uuid_extract_timestamp(c.inference_id) AS started_at, c.episode_id, c.step_index,
            c.function_name, c.variant_name, c.unselected, i.bucket, c.input_row, m.call_row,
            m.model_name, m.model_provider_name, m.input_tokens, m.output_tokens, m.cost_usd, m.finish_reason, m.cached,
            -- a prompt that was rendered does not depend on which call gave the answer
            coalesce(a.is_ambiguous AND NOT m.is_rendered, false) AS is_ambiguous,
            coalesce(m.has_messages AND (m.is_rendered OR a.is_ambiguous IS NOT true), false) AS has_prompt,
            m.unknown_because,
            coalesce(m.is_plain, false) AS is_plain,
            i.output IS NULL AS is_expired, g.answer AS given_answer,
            CASE WHEN u.input_row IS NULL
                THEN json_extract(i.output, ['$.raw', '$.parsed', getvariable('action_path')]) END AS found,
            u.input_row IS NOT NULL AS is_unusual, u.answer AS unusual_answer, u.action_found AS unusual_action,
            g.inference_id IS NOT NULL OR u.input_row IS NOT NULL AS is_judged,
            CASE WHEN g.inference_id IS NOT NULL THEN g.is_invalid ELSE u.is_invalid END AS is_known_invalid,
            i.observation,
            CASE WHEN k.input_row IS NOT NULL THEN k.tools
                WHEN coalesce(i.tool_params, '') <> '' AND json_array_length(i.tool_params, '$.tools_available') > 0
                THEN json_extract(i.tool_params, '$.tools_available') END AS tools,
            coalesce(k.is_unknown, false) AS are_tools_unknown, k.extra AS tool_extra,
            coalesce(i.processing_time_ms, m.response_time_ms) / 1000.0 AS latency_s, m.ttft_ms, i.snapshot_hash,
            CASE WHEN i.tags <> t.first_tags THEN i.tags END AS own_tags, t.actions, t.default_action, t.has_rule
        FROM spooled_inference i
        JOIN bucket_step c ON c.input_row = i.input_row
        JOIN episode_tag t ON t.episode_id = c.episode_id
        LEFT JOIN unusual_answer u ON u.input_row = i.input_row
        LEFT JOIN step_tool k ON k.input_row = i.input_row
        LEFT JOIN given_answer g ON g.inference_id = c.inference_id
        LEFT JOIN answering a ON a.inference_id = c.inference_id
        LEFT JOIN call m ON m.inference_id = c.inference_id
            AND (a.inference_id IS NULL OR m.model_inference_id = a.model_inference_id)
    )
);

-- A view: that a prompt is no list of messages is found out later.
CREATE OR REPLACE TEMP VIEW said AS
SELECT t.*, CASE WHEN unselected IS NOT NULL THEN unselected
        WHEN r.reason IS NOT NULL THEN 'unreadable: ' || r.reason
        WHEN is_expired THEN 'payload expired'
        WHEN is_invalid AND NOT getvariable('include_invalid') THEN 'invalid output'
        WHEN are_tools_unknown THEN 'tools unknown'
        WHEN is_ambiguous THEN 'prompt ambiguous'
        WHEN NOT has_prompt THEN concat_ws(': ', 'prompt unknown', unknown_because) END AS mask_reason
FROM told t LEFT JOIN unreadable r ON r.inference_id = t.inference_id;

-- Episodes with a prompt that may be of several messages: it may go on where the prompt of the step before ended.
CREATE OR REPLACE TEMP TABLE conversing AS
SELECT DISTINCT episode_id FROM bucket_step WHERE inference_id IN (SELECT inference_id FROM call WHERE may_go_on);

CREATE OR REPLACE TEMP TABLE continued (inference_id UUID, n_kept BIGINT, new_messages VARCHAR);

CREATE OR REPLACE TEMP TABLE apart (inference_id UUID, id_before UUID);

CREATE OR REPLACE TEMP TABLE prompted (inference_id UUID, answer VARCHAR, prompt VARCHAR);

CREATE OR REPLACE TEMP TABLE extension (inference_id UUID, n_kept BIGINT, start BIGINT);
