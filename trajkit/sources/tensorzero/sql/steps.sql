-- The steps of one bucket of episodes, in the columns of the store (but their metrics).
--
-- Reads: chosen_step, spooled_inference, spooled_model_inference, episode_tag, demonstration_value, and the variables
-- observation_path, message_observation_path, action_path, include_invalid. Wide columns never go through a window or
-- a sort here: ids do, and the text is joined to them.

CREATE OR REPLACE TEMP VIEW inference AS
SELECT s.* REPLACE (s.inference_id::UUID AS inference_id, s.episode_id::UUID AS episode_id) FROM spooled_inference s;

CREATE OR REPLACE TEMP VIEW model_inference AS
SELECT s.* REPLACE (s.inference_id::UUID AS inference_id) FROM spooled_model_inference s;

-- Narrow, and of this bucket alone: the small side of a join with the texts.
CREATE OR REPLACE TEMP TABLE bucket_step AS
SELECT c.* FROM chosen_step c SEMI JOIN inference i USING (inference_id);

-- Which model call gave the answer: the only one, or, where several were made, the only one whose text is the answer.
CREATE OR REPLACE TEMP TABLE several AS
SELECT inference_id FROM model_inference GROUP BY inference_id HAVING count(*) > 1;

CREATE OR REPLACE TEMP TABLE answering AS
WITH candidate AS (
    SELECT m.inference_id, m.model_inference_id, json_extract_string(m.output, '$[#-1].text')
        IS NOT DISTINCT FROM coalesce(
            json_extract_string(i.output, '$.raw'), json_extract_string(i.output, '$[#-1].text')) AS is_match
    FROM model_inference m SEMI JOIN several USING (inference_id) JOIN inference i USING (inference_id)
)
SELECT inference_id, arg_max(model_inference_id, (is_match, model_inference_id)) AS model_inference_id,
    count(*) FILTER (is_match) <> 1 AS is_ambiguous
FROM candidate GROUP BY inference_id;

CREATE OR REPLACE TEMP VIEW said AS
SELECT c.inference_id, c.episode_id, c.step_index, c.function_name, c.variant_name, c.is_selected,
    m.model_name, m.model_provider_name, m.input_tokens, m.output_tokens, m.cost_usd, m.finish_reason, m.cached,
    coalesce(a.is_ambiguous, false) AS is_ambiguous,
    coalesce(m.input_messages, '') <> '' AND NOT coalesce(a.is_ambiguous, false) AS has_prompt,
    CASE WHEN has_prompt THEN as_prompt(m.system, m.input_messages) END AS prompt,
    CASE WHEN i.function_type = 'json' THEN as_json_answer(json_extract_string(i.output, '$.raw'), i.auxiliary_content)
        ELSE as_chat_answer(i.output) END AS answer,
    CASE WHEN i.function_type = 'json' THEN coalesce(json_type(i.output, '$.parsed'), 'NULL') = 'NULL'
        WHEN i.output = '[]' THEN true
        WHEN NOT contains(i.output, '"tool_call"') THEN false
        ELSE len(list_filter(from_json(i.output, '["JSON"]'), lambda b: b->>'$.type' = 'tool_call'
            AND ((b->>'$.name') IS NULL OR (b->>'$.arguments') IS NULL))) > 0 END AS is_invalid,
    CASE WHEN i.function_type = 'json' THEN json_extract(i.output, getvariable('action_path'))
        WHEN contains(i.output, '"tool_call"') THEN to_json(list_transform(
            list_filter(from_json(i.output, '["JSON"]'), lambda b: b->>'$.type' = 'tool_call'),
            lambda b: json_object('name', b->>'$.raw_name',
                'arguments', CASE WHEN (b->>'$.arguments') IS NULL THEN to_json(b->>'$.raw_arguments') ELSE b->'$.arguments' END))) END AS action_found,
    i.input, observation_of(i.input) AS observation,
    CASE WHEN coalesce(i.tool_params, '') <> '' AND json_array_length(i.tool_params, '$.tools_available') > 0
        THEN json_extract(i.tool_params, '$.tools_available') END AS tools,
    i.processing_time_ms / 1000.0 AS latency_s, i.snapshot_hash,
    CASE WHEN i.tags <> t.first_tags THEN i.tags END AS own_tags, t.actions, t.default_action, t.has_rule
FROM inference i
JOIN bucket_step c USING (inference_id)
JOIN episode_tag t ON t.episode_id = c.episode_id
LEFT JOIN answering a USING (inference_id)
LEFT JOIN model_inference m ON m.inference_id = i.inference_id
    AND (a.inference_id IS NULL OR m.model_inference_id = a.model_inference_id);

-- Episodes with a prompt of several messages: one of those may go on where the prompt of the step before ended.
CREATE OR REPLACE TEMP TABLE conversing AS
SELECT DISTINCT c.episode_id FROM model_inference m JOIN bucket_step c USING (inference_id)
WHERE contains(m.input_messages, '},{"role":"');

CREATE OR REPLACE TEMP TABLE extension (inference_id UUID, n_kept BIGINT, start BIGINT);

-- A view: its text is made once, when the store is written, and what only needs ids and numbers never makes it.
CREATE OR REPLACE TEMP VIEW step_row AS
SELECT
    s.episode_id::VARCHAR AS episode_id, step_index, inference_id::VARCHAR AS inference_id, function_name,
    variant_name, model_name, coalesce(x.n_kept, 0) AS n_prompt_kept,
    CASE WHEN x.n_kept IS NULL THEN prompt ELSE '[' || ltrim(substr(prompt, x.start), ',') END AS messages,
    tools, answer AS completion, input, observation,
    CASE WHEN json_type(action_found) <> 'NULL' THEN action_found END AS action,
    CASE WHEN NOT has_rule THEN NULL
        WHEN json_type(action_found) = 'VARCHAR' AND list_contains(actions, action_found->>'$') THEN action_found->>'$'
        ELSE default_action END AS action_executed,
    CASE WHEN has_rule THEN coalesce(
        json_type(action_found) = 'VARCHAR' AND list_contains(actions, action_found->>'$'), false) END AS action_valid,
    NULL AS reward, NULL AS terminated, NULL AS truncated, demonstration,
    input_tokens AS n_input_tokens, output_tokens AS n_output_tokens, cost_usd, latency_s, finish_reason, cached,
    uuid_extract_timestamp(inference_id) AS started_at,
    CASE WHEN mask_reason IS NULL THEN 1.0 ELSE 0.0 END AS loss_weight, mask_reason, snapshot_hash,
    CASE WHEN own_tags IS NOT NULL OR model_provider_name IS NOT NULL THEN json_merge_patch('{}', json_object(
        'model_provider_name', model_provider_name, 'tags', own_tags::JSON)) END AS extra,
    NULL AS prompt_token_ids, NULL AS completion_token_ids, NULL AS logprobs, NULL AS model_version,
    NULL AS agent_name, NULL AS parent_step, NULL AS legal_actions, NULL AS info
FROM (
    SELECT *, CASE WHEN NOT is_selected THEN 'not selected'
        WHEN is_invalid AND NOT getvariable('include_invalid') THEN 'invalid output'
        WHEN is_ambiguous THEN 'prompt ambiguous'
        WHEN NOT has_prompt THEN 'prompt unknown' END AS mask_reason
    FROM said
) s
LEFT JOIN extension x USING (inference_id)
LEFT JOIN demonstration_value d USING (inference_id);

CREATE OR REPLACE TEMP TABLE step_fact AS
SELECT episode_id, function_name, variant_name, started_at, latency_s, n_input_tokens, n_output_tokens, cost_usd,
    mask_reason
FROM step_row;
