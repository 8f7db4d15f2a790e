-- The tags and the known environment of each episode of some buckets.
--
-- Reads: spooled_inference, action_rule.

CREATE OR REPLACE TEMP TABLE episode_tag AS
WITH of_step AS (
    SELECT episode_id::UUID AS episode_id, tags, min(inference_id) AS first_id FROM spooled_inference GROUP BY ALL
), pair AS (
    SELECT episode_id, first_id, unnest(json_keys(tags)) AS key, tags FROM of_step
), first_pair AS (
    SELECT episode_id, key, arg_min(json_extract_string(
        tags, '$."' || replace(replace(key, '\', '\\'), '"', '\"') || '"'), first_id) AS value
    FROM pair GROUP BY ALL
), merged AS (
    SELECT episode_id, to_json(map_from_entries(list_sort(list({key: key, value: value})))) AS tags
    FROM first_pair GROUP BY episode_id
)
SELECT o.episode_id, coalesce(m.tags, '{}'::JSON) AS tags, o.first_tags,
    m.tags->>'$."trajkit.env"' AS env_id, r.actions, r.default_action, r.env_id IS NOT NULL AS has_rule
FROM (SELECT episode_id, arg_min(tags, first_id) AS first_tags FROM of_step GROUP BY episode_id) o
LEFT JOIN merged m USING (episode_id)
LEFT JOIN action_rule r ON r.env_id = m.tags->>'$."trajkit.env"';
