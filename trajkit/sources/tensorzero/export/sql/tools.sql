-- The tools of steps that do not just have all that their `tool_params` list: some were given with the request, only some
-- were allowed, or (Postgres) there is no such column, and what the function's own are stands in the configuration.
--
-- Reads: spooled_inference, configured_tool. Fills: step_tool. Their order is that of the list, or of what was allowed,
-- which has the function's own first, then those given with the request: the same in every database.

INSERT INTO step_tool
WITH asked AS (
    SELECT input_row, snapshot_hash, coalesce(allowed_tools->>'$.choice', '') = 'explicit' AS is_explicit,
        coalesce(from_json(json_extract(nullif(allowed_tools, ''), '$.tools'), '["VARCHAR"]'), []) AS allowed,
        coalesce(list_transform(from_json(dynamic_tools, '["JSON"]'), lambda tool: as_tool(tool)), []) AS given,
        coalesce(from_json(json_extract(tool_params_of(tool_params), '$.tools_available'), '["JSON"]'), []) AS listed,
        CASE WHEN has_tool_extra(tool_choice, parallel_tool_calls, dynamic_provider_tools)
            THEN tool_extra(tool_choice, parallel_tool_calls, dynamic_provider_tools) END AS extra
    FROM spooled_inference
    WHERE has_unusual_tools(tool_params, dynamic_tools, allowed_tools)
        OR has_tool_extra(tool_choice, parallel_tool_calls, dynamic_provider_tools)
), allowed_one AS (
    SELECT input_row, snapshot_hash, unnest(allowed) AS key, generate_subscripts(allowed, 1) AS position, given, listed
    FROM asked
), found AS (
    SELECT input_row, list(coalesce(
            list_filter(given, lambda tool: tool->>'$.name' = key)[1],
            list_filter(listed, lambda tool: tool->>'$.name' = key)[1], c.tool) ORDER BY position) AS tools
    FROM allowed_one LEFT JOIN configured_tool c USING (snapshot_hash, key) GROUP BY input_row
), all_of AS (
    SELECT a.input_row, extra, is_explicit, len(listed) > 0 AS has_list, coalesce(f.tools, []) AS allowed_tools,
        -- those given that the request did not allow by name, and those that the list cannot hold
        list_filter(given, lambda tool: NOT list_contains(allowed, tool->>'$.name')) AS also_given,
        listed || list_filter(given, lambda tool: tool->>'$.type' IS NOT NULL) AS all_listed
    FROM asked a LEFT JOIN found f USING (input_row)
), chosen AS (
    SELECT input_row, extra, CASE
        WHEN is_explicit AND NOT (has_list AND list_contains_null(allowed_tools)) THEN allowed_tools
        WHEN has_list THEN all_listed ELSE allowed_tools || also_given END AS tools
    FROM all_of
)
SELECT input_row, CASE WHEN len(tools) > 0 AND NOT list_contains_null(tools) THEN to_json(tools) END,
    list_contains_null(tools), extra::JSON
FROM chosen;
