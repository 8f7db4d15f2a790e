-- How an inference becomes a step: its answer, its tools. Text is only looked into where it
-- must be.

-- A text that should be JSON, or itself as a JSON text; DuckDB alone takes inf and nan for numbers.
CREATE OR REPLACE MACRO as_json(text_value) AS
    CASE WHEN json_valid(text_value) AND regexp_matches(text_value, '^\s*(?:[\[{"]|-?[0-9]|true|false|null)')
        THEN text_value ELSE spelled(text_value) END;

-- Whether the blocks of an answer can pass as they are: one text, without escapes that trajkit spells in another way.
-- Inside JSON strings quotes are escaped: a quote before a comma or a bracket ends the text.
CREATE OR REPLACE MACRO is_one_text(blocks) AS starts_with(blocks, '[{"type":"text","text":"') AND ends_with(blocks, '"}]')
    AND NOT regexp_matches(substr(blocks, 25), '(?:^|[^\\])"[,}][^\]]|\\[u/]');

-- The thoughts of a JSON function, a block each; NULL for none.
CREATE OR REPLACE MACRO as_thoughts(auxiliary) AS list_transform(list_filter(
    from_json(nullif(auxiliary, ''), '["JSON"]'), lambda block: (block->>'$.type') IS DISTINCT FROM 'tool_call'),
    lambda block: as_block(block));

-- Whether an answer is more than the text of a JSON function.
CREATE OR REPLACE MACRO is_unusual(function_type, auxiliary) AS
    function_type <> 'json' OR coalesce(auxiliary, '') NOT IN ('', '[]');

-- The answer that a list of our blocks is.
CREATE OR REPLACE MACRO as_said(content) AS '{"role":"assistant","content":' || content || '}';

-- The answer of a JSON function: its raw text, if it gave any.
CREATE OR REPLACE MACRO as_json_answer(raw) AS
    '{"role":"assistant","content":[' || CASE WHEN raw IS NULL THEN '' ELSE text_block(raw) END || ']}';

-- The same from the JSON that stands for the text: a string has the store's spelling already.
CREATE OR REPLACE MACRO as_raw_answer(raw) AS
    '{"role":"assistant","content":[' || CASE WHEN coalesce(raw, 'null') = 'null' THEN '' ELSE
        '{"type":"text","text":' || CASE WHEN starts_with(raw, '"') THEN raw ELSE spelled(raw) END || '}' END || ']}';

-- An answer with what came before it: thoughts, then the raw text.
CREATE OR REPLACE MACRO as_thoughtful_answer(raw, auxiliary) AS
    as_said('[' || coalesce(array_to_string(list_append(as_thoughts(auxiliary), text_block(raw)), ','), '') || ']');

CREATE OR REPLACE MACRO as_chat_answer(output) AS
    as_said(CASE WHEN is_one_text(output) THEN output ELSE as_content(output) END);

-- The tool calls of a chat function's output.
CREATE OR REPLACE MACRO tool_calls(output) AS
    list_filter(from_json(output, '["JSON"]'), lambda block: block->>'$.type' = 'tool_call');

-- Whether the output of a chat function is no answer: it is empty, no list, or has a call whose name or arguments are
-- null, which the gateway could not check against its tools.
CREATE OR REPLACE MACRO is_invalid_chat(output) AS
    CASE WHEN output IS NULL OR json_type(output) <> 'ARRAY' OR json_array_length(output) = 0 THEN true
        WHEN NOT contains(output, '"tool_call"') THEN false
        ELSE len(list_filter(tool_calls(output), lambda block:
            (block->>'$.name') IS NULL OR (block->>'$.arguments') IS NULL)) > 0 END;

-- The answer that a demonstration stands for: a list of blocks, the output of a JSON function, or just a text.
CREATE OR REPLACE MACRO as_given_answer(demonstration) AS CASE
    WHEN json_type(demonstration) = 'ARRAY' THEN as_chat_answer(demonstration)
    WHEN json_type(demonstration, '$.raw') = 'VARCHAR' THEN as_json_answer(demonstration->>'$.raw')
    WHEN json_type(demonstration) = 'VARCHAR' THEN as_json_answer(demonstration->>'$')
    ELSE as_json_answer(demonstration::VARCHAR) END;

-- What a tool call does: the arguments as the gateway parsed them, else as the model wrote them.
CREATE OR REPLACE MACRO as_action(block) AS json_object(
    'name', coalesce(block->>'$.raw_name', block->>'$.name'),
    'arguments', CASE WHEN (block->>'$.arguments') IS NULL THEN to_json(block->>'$.raw_arguments')
        ELSE json_extract(block, '$.arguments') END);

-- `tool_params` as JSON: it may be empty, or a JSON text inside a JSON text.
CREATE OR REPLACE MACRO tool_params_of(tool_params) AS CASE WHEN coalesce(tool_params, '') = '' THEN NULL
    WHEN NOT starts_with(tool_params, '"') THEN tool_params
    WHEN json_valid(tool_params::JSON->>'$') THEN tool_params::JSON->>'$' END;

-- A tool that was given with a request, as `tool_params` lists it: without the word for the usual kind.
CREATE OR REPLACE MACRO as_tool(tool) AS
    CASE WHEN coalesce(tool->>'$.type', 'function') IN ('function', 'client_side_function') THEN json_object(
        'description', json_extract(tool, '$.description'), 'parameters', json_extract(tool, '$.parameters'),
        'name', json_extract(tool, '$.name'), 'strict', coalesce(json_extract(tool, '$.strict'), 'false'::JSON))
    ELSE tool END;

-- Whether a step's tools are more, or fewer, than those that its `tool_params` list, or it asked for them in an unusual way.
CREATE OR REPLACE MACRO has_unusual_tools(tool_params, dynamic_tools, allowed_tools) AS
    CASE WHEN coalesce(tool_params, '') IN ('', 'null') THEN allowed_tools IS NOT NULL OR dynamic_tools IS NOT NULL
        ELSE starts_with(tool_params, '"') OR contains(allowed_tools, '"explicit"')
            OR contains(dynamic_tools, '"openai_custom"') END;

CREATE OR REPLACE MACRO has_tool_extra(tool_choice, parallel_tool_calls, provider_tools) AS
    coalesce(tool_choice, 'auto') NOT IN ('auto', '"auto"') OR parallel_tool_calls IS NOT NULL OR provider_tools IS NOT NULL;

-- How tools were asked for, where it was not the usual way. A choice is a bare word, or JSON.
CREATE OR REPLACE MACRO tool_extra(tool_choice, parallel_tool_calls, provider_tools) AS
    '{' || concat_ws(',', '"tool_choice":' || CASE WHEN coalesce(tool_choice, 'auto') NOT IN ('auto', '"auto"') THEN
            CASE WHEN json_valid(tool_choice) THEN tool_choice ELSE spelled(tool_choice) END END,
        '"parallel_tool_calls":' || parallel_tool_calls::VARCHAR, '"provider_tools":' || provider_tools) || '}';

CREATE OR REPLACE MACRO list_contains_null(items) AS list_count(items) < len(items);
