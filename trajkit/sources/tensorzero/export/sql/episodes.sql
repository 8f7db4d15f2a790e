-- The episodes and the feedback of some buckets, in the columns of the store.
--
-- Reads: said, episode_tag, episode_value, exact_value, fate, task_of, scored_feedback, and the variables source, origin.

CREATE OR REPLACE TEMP TABLE episode_row AS
WITH summed AS (
    SELECT episode_id, count(*) AS n_steps,
        list_sort(list_distinct(list(function_name))) AS function_names,
        list_sort(list_distinct(list(variant_name))) AS variant_names,
        min(started_at) AS started_at,
        max(started_at + to_microseconds(round(coalesce(latency_s, 0) * 1000000)::BIGINT)) AS ended_at,
        -- a sum over steps of which one is unknown is unknown
        CASE WHEN count(input_tokens) = count(*) THEN sum(input_tokens)::BIGINT END AS n_input_tokens,
        CASE WHEN count(output_tokens) = count(*) THEN sum(output_tokens)::BIGINT END AS n_output_tokens,
        CASE WHEN count(cost_usd) = count(*) THEN sum(cost_usd) END AS cost_usd
    FROM said GROUP BY episode_id
)
SELECT s.episode_id::VARCHAR AS episode_id, getvariable('source') AS source, t.env_id,
    coalesce(t.tags->>'$."trajkit.task"', w.task_name) AS task, TRY_CAST(t.tags->>'$."trajkit.seed"' AS BIGINT) AS seed,
    NULL AS initial_state_hash, f.purpose, s.function_names, s.variant_names, s.started_at, s.ended_at, s.n_steps,
    NULL AS total_reward, s.n_input_tokens, s.n_output_tokens, s.cost_usd,
    t.tags, CASE WHEN y.target_id IS NULL THEN getvariable('origin')::JSON
        ELSE json_merge_patch(getvariable('origin'), json_object('exact_metrics', y.exact_metrics)) END AS origin,
    v.metrics, coalesce(v.outcome, 'unknown') AS outcome
FROM summed s
-- those of the whole export may be many
JOIN (FROM fate WHERE episode_id IN (SELECT episode_id FROM episode_tag)) f ON f.episode_id = s.episode_id
JOIN episode_tag t ON t.episode_id = s.episode_id
LEFT JOIN (FROM episode_value WHERE episode_id IN (SELECT episode_id FROM episode_tag)) v
    ON v.episode_id = s.episode_id
LEFT JOIN (FROM exact_value WHERE target_id IN (SELECT episode_id FROM episode_tag)) y ON y.target_id = s.episode_id
-- an evaluation of a workflow names the tasks of its episodes
LEFT JOIN (SELECT episode_id, max(task_name) AS task_name FROM task_of GROUP BY episode_id) w
    ON w.episode_id = s.episode_id;

CREATE OR REPLACE TEMP TABLE feedback_row AS
SELECT feedback_id::VARCHAR AS feedback_id, episode_id::VARCHAR AS episode_id, inference_id::VARCHAR AS inference_id,
    kind, metric_name, value,
    to_json(tags) AS tags, uuid_extract_timestamp(feedback_id) AS created_at
FROM scored_feedback
WHERE episode_id IN (SELECT episode_id FROM episode_tag);
