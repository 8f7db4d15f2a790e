-- The steps of some buckets, in the columns of the store, with what `late.py` asks for.
--
-- Reads: said, continued, prompted, extension, preparing, demonstration_value, step_value, exact_value. A view, read once: when
-- the store is written.

CREATE OR REPLACE TEMP VIEW step_row AS
SELECT
    s.episode_id::VARCHAR AS episode_id, step_index, inference_id::VARCHAR AS inference_id, function_name,
    variant_name, model_name, coalesce(c.n_kept, x.n_kept, 0) AS n_prompt_kept,
    CASE WHEN c.n_kept IS NOT NULL THEN c.new_messages WHEN x.n_kept IS NULL THEN p.prompt
        ELSE '[' || ltrim(substr(p.prompt, x.start), ',') END AS messages,
    v.metrics, tools,
    -- spelled as the store spells it: the writer need not look into it again
    CASE WHEN is_answer_spelled THEN s.answer ELSE nullif(json(s.answer)::VARCHAR, 'null') END AS completion,
    NULL AS input, observation,
    CASE WHEN action_found::VARCHAR <> 'null' AND is_preparing IS NULL THEN action_found END AS action,
    CASE WHEN NOT has_rule OR is_preparing THEN NULL
        WHEN is_listed THEN action_text ELSE default_action END AS action_executed,
    CASE WHEN has_rule AND is_preparing IS NULL THEN is_listed END AS action_valid,
    NULL AS reward, NULL AS terminated, NULL AS truncated, demonstration,
    input_tokens AS n_input_tokens, output_tokens AS n_output_tokens, cost_usd, latency_s, finish_reason, cached,
    started_at,
    CASE WHEN mask_reason IS NULL THEN 1.0 ELSE 0.0 END AS loss_weight, mask_reason, snapshot_hash,
    CASE WHEN coalesce(own_tags, tool_extra::VARCHAR, replaced_answer, exact_metrics::VARCHAR, ttft_ms::VARCHAR) IS NULL
        THEN '{"model_provider_name":' || spelled(model_provider_name) || '}'
        ELSE json_merge_patch('{}', json_object('model_provider_name', model_provider_name, 'tags', own_tags::JSON,
            'ttft_s', ttft_ms / 1000.0, 'replaced_answer', replaced_answer::JSON, 'exact_metrics', exact_metrics),
            coalesce(tool_extra, '{}'::JSON))::VARCHAR END AS extra,
    NULL AS prompt_token_ids, NULL AS completion_token_ids, NULL AS logprobs, NULL AS model_version,
    NULL AS agent_name, NULL AS parent_step, NULL AS legal_actions, NULL AS info,
    bucket, input_row, CASE WHEN has_prompt AND p.prompted_id IS NULL AND c.n_kept IS NULL THEN call_row END AS call_row,
    CASE WHEN has_prompt AND (p.prompted_id IS NULL OR p.prompt IS NOT NULL) THEN call_row END AS sent_row
FROM said s
LEFT JOIN (SELECT inference_id AS prompted_id, prompt FROM prompted) p ON p.prompted_id = s.inference_id
LEFT JOIN continued c USING (inference_id)
LEFT JOIN extension x USING (inference_id)
LEFT JOIN preparing USING (inference_id)
-- those of the whole export may be many
LEFT JOIN (FROM demonstration_value WHERE inference_id IN (SELECT inference_id FROM told)) d USING (inference_id)
LEFT JOIN (FROM step_value WHERE inference_id IN (SELECT inference_id FROM told)) v USING (inference_id)
LEFT JOIN (FROM exact_value WHERE target_id IN (SELECT inference_id FROM told)) y ON y.target_id = s.inference_id;
