-- How TensorZero's JSON becomes trajkit's messages. Text is only looked into where it must be.

-- One block of stored content, in any of the shapes it ever had, as one of ours.
CREATE OR REPLACE MACRO as_block(b) AS
    CASE b->>'$.type'
        WHEN 'text' THEN json_object('type', 'text', 'text', coalesce(b->>'$.text', b->>'$.value', ''))
        WHEN 'raw_text' THEN json_object('type', 'text', 'text', coalesce(b->>'$.value', ''))
        WHEN 'tool_call' THEN json_object(
            'type', 'tool_call', 'id', coalesce(b->>'$.id', ''),
            'name', coalesce(b->>'$.raw_name', b->>'$.name', ''),
            'arguments', coalesce(b->>'$.raw_arguments', b->>'$.arguments', ''))
        WHEN 'tool_result' THEN json_object(
            'type', 'tool_result', 'id', coalesce(b->>'$.id', ''), 'name', coalesce(b->>'$.name', ''),
            'result', coalesce(b->>'$.result', ''))
        WHEN 'thought' THEN json_object(
            'type', 'thought', 'text', b->>'$.text', 'signature', b->>'$.signature', 'summary', b->'$.summary',
            'provider_type', b->>'$.provider_type', 'extra_data', b->'$.extra_data')
        WHEN 'file' THEN json_object(
            'type', 'file', 'source_url', coalesce(b->>'$.source_url', b->>'$.file.url'),
            'mime_type', coalesce(b->>'$.mime_type', b->>'$.file.mime_type'), 'storage_path', b->'$.storage_path',
            'detail', b->>'$.detail', 'filename', b->>'$.filename')
        WHEN 'image' THEN json_object(
            'type', 'file', 'source_url', b->>'$.image.url', 'mime_type', b->>'$.image.mime_type',
            'storage_path', b->'$.storage_path', 'detail', b->>'$.detail', 'filename', b->>'$.filename')
        WHEN 'unknown' THEN json_object(
            'type', 'unknown', 'data', b->'$.data', 'model_name', b->>'$.model_name',
            'provider_name', b->>'$.provider_name')
        ELSE json_object('type', 'unknown', 'data', b)
    END;

-- The content of a list of blocks.
CREATE OR REPLACE MACRO as_content(blocks) AS
    '[' || array_to_string(
        list_transform(from_json(blocks, '["JSON"]'), lambda b: as_block(b)::VARCHAR), ',') || ']';

-- Whether rendered messages can pass as they are: only text. Inside JSON strings quotes are escaped, so that the
-- pattern never matches a text that merely mentions it.
CREATE OR REPLACE MACRO is_plain(messages) AS NOT regexp_matches(messages, '"type":"[^t]|"type":"t[^e]|"value":');

CREATE OR REPLACE MACRO as_message(m) AS
    '{"role":' || (m->'$.role')::VARCHAR || ',"content":' || as_content((m->'$.content')::VARCHAR) || '}';

-- The messages that a model saw, system first, as the text of a JSON list.
CREATE OR REPLACE MACRO as_prompt(system_text, messages) AS
    '[' || CASE WHEN system_text IS NULL THEN '' ELSE
        '{"role":"system","content":[{"type":"text","text":' || to_json(system_text)::VARCHAR || '}]}'
        || CASE WHEN messages = '[]' THEN '' ELSE ',' END END
    || CASE WHEN is_plain(messages) THEN substr(messages, 2)
        ELSE array_to_string(
            list_transform(from_json(messages, '["JSON"]'), lambda m: as_message(m)), ',') || ']' END;

CREATE OR REPLACE MACRO as_thoughts(auxiliary) AS
    array_to_string(list_transform(
        list_filter(from_json(auxiliary, '["JSON"]'), lambda b: b->>'$.type' <> 'tool_call'),
        lambda b: as_block(b)::VARCHAR), ',');

-- Whether an answer is more than the text of a JSON function.
CREATE OR REPLACE MACRO is_unusual(function_type, auxiliary) AS
    function_type <> 'json' OR coalesce(auxiliary, '') NOT IN ('', '[]');

-- The answer of a JSON function: its raw text, if it gave any.
CREATE OR REPLACE MACRO as_json_answer(raw) AS
    '{"role":"assistant","content":[' || CASE WHEN raw IS NULL THEN ''
        ELSE '{"type":"text","text":' || to_json(raw)::VARCHAR || '}' END || ']}';

-- The same with what came before it: thoughts, then the raw text.
CREATE OR REPLACE MACRO as_thoughtful_answer(raw, auxiliary) AS
    '{"role":"assistant","content":[' || concat_ws(',', nullif(as_thoughts(auxiliary), ''),
        CASE WHEN raw IS NOT NULL THEN '{"type":"text","text":' || to_json(raw)::VARCHAR || '}' END) || ']}';

CREATE OR REPLACE MACRO as_chat_answer(output) AS
    '{"role":"assistant","content":' || as_content(output) || '}';

-- The last message of the user in a structured input.
CREATE OR REPLACE MACRO last_user(input) AS
    list_last(list_filter(
        from_json(json_extract(input, '$.messages'), '["JSON"]'), lambda m: m->>'$.role' = 'user'));

CREATE OR REPLACE MACRO last_text(texts) AS list_last(list_filter(texts, lambda t: t IS NOT NULL));

-- What the environment showed: the template argument, else the last text, of the last message of the user.
-- `found` is what the usual shape (the user spoke last, in one block) has at: role, observation, text, second block.
CREATE OR REPLACE MACRO usual_observation(found, input) AS
    CASE WHEN found[1] = 'user' AND found[4] IS NULL AND coalesce(found[2], found[3]) IS NOT NULL
        THEN coalesce(found[2], found[3]) ELSE coalesce(
            last_text(json_extract_string(last_user(input), getvariable('message_observation_path'))),
            last_text(json_extract_string(last_user(input), '$.content[*].text')),
            last_text(json_extract_string(last_user(input), '$.content[*].value'))) END;

CREATE OR REPLACE MACRO observation_of(input) AS usual_observation(json_extract_string(input, [
    '$.messages[#-1].role', getvariable('observation_path'), '$.messages[#-1].content[0].text',
    '$.messages[#-1].content[1].type']), input);
