-- How TensorZero's blocks and messages become trajkit's, in any of the shapes that they ever had.

-- A text as JSON, and a JSON value in its one spelling (`docs/store-format.md`): members sorted, no spaces. NULL for null.
CREATE OR REPLACE MACRO spelled(text_value) AS to_json(text_value)::VARCHAR;

CREATE OR REPLACE MACRO canonical(value) AS
    nullif(CAST(CAST(CAST(value AS JSON) AS VARIANT) AS JSON)::VARCHAR, 'null');

-- A member of a JSON object as text: a string's own text, anything else as canonical JSON; NULL for null.
CREATE OR REPLACE MACRO member_text(b, path) AS
    CASE WHEN json_type(b, path) = 'VARCHAR' THEN b->>path ELSE canonical(json_extract(b, path)) END;

CREATE OR REPLACE MACRO text_block(text_value) AS '{"type":"text","text":' || spelled(text_value) || '}';

-- Whatever has no type of its own, kept.
CREATE OR REPLACE MACRO unknown_block(b) AS '{"type":"unknown","data":' || coalesce(canonical(b), 'null') || '}';

-- What `model_provider_name` of older rows says: 1 for the model, 2 for the provider.
CREATE OR REPLACE MACRO qualifier(b, part) AS nullif(regexp_extract(
    b->>'$.model_provider_name', '^tensorzero::model_name::(.*)::provider_name::(.*)$', part), '');

-- A file: its place and kind stand in the block, or in `file` or `image` inside it.
CREATE OR REPLACE MACRO file_block(b, inner_file) AS '{' || concat_ws(',', '"type":"file"',
    '"source_url":' || spelled(coalesce(
        b->>'$.source_url', b->>'$.url', inner_file->>'$.source_url', inner_file->>'$.url')),
    '"mime_type":' || spelled(coalesce(b->>'$.mime_type', inner_file->>'$.mime_type')),
    '"storage_path":' || canonical(json_extract(b, '$.storage_path')),
    '"detail":' || spelled(coalesce(b->>'$.detail', inner_file->>'$.detail')),
    '"filename":' || spelled(coalesce(b->>'$.filename', inner_file->>'$.filename'))) || '}';

-- One block of stored content, in any of the shapes it ever had, as one of ours: fields in the order of the schema,
-- those that are null left out. A text block without text is a template's arguments, which nobody rendered.
CREATE OR REPLACE MACRO as_block(b) AS
    CASE WHEN json_type(b) = 'VARCHAR' THEN text_block(b->>'$') ELSE CASE b->>'$.type'
        WHEN 'text' THEN CASE
            WHEN json_type(b, '$.text') = 'VARCHAR' THEN text_block(b->>'$.text')
            WHEN json_type(b, '$.value') = 'VARCHAR' THEN text_block(b->>'$.value') ELSE unknown_block(b) END
        WHEN 'raw_text' THEN CASE
            WHEN json_type(b, '$.value') = 'VARCHAR' THEN text_block(b->>'$.value') ELSE unknown_block(b) END
        WHEN 'tool_call' THEN '{"type":"tool_call","id":' || spelled(coalesce(member_text(b, '$.id'), ''))
            || ',"name":' || spelled(coalesce(member_text(b, '$.raw_name'), member_text(b, '$.name'), ''))
            || ',"arguments":' || spelled(
                coalesce(member_text(b, '$.raw_arguments'), member_text(b, '$.arguments'), '')) || '}'
        WHEN 'tool_result' THEN '{"type":"tool_result","id":' || spelled(coalesce(member_text(b, '$.id'), ''))
            || ',"name":' || spelled(coalesce(member_text(b, '$.name'), ''))
            || ',"result":' || spelled(coalesce(member_text(b, '$.result'), '')) || '}'
        WHEN 'thought' THEN '{' || concat_ws(',', '"type":"thought"',
            '"text":' || spelled(member_text(b, '$.text')), '"signature":' || spelled(member_text(b, '$.signature')),
            '"summary":' || CASE WHEN json_type(b, '$.summary') = 'ARRAY' THEN canonical(json_extract(b, '$.summary')) END,
            '"provider_type":' || spelled(
                coalesce(member_text(b, '$.provider_type'), member_text(b, '$._internal_provider_type'))),
            '"extra_data":' || canonical(json_extract(b, '$.extra_data'))) || '}'
        WHEN 'file' THEN file_block(b, coalesce(json_extract(b, '$.file'), json_extract(b, '$.image')))
        WHEN 'image' THEN file_block(b, coalesce(json_extract(b, '$.image'), json_extract(b, '$.file')))
        WHEN 'unknown' THEN '{' || concat_ws(',', '"type":"unknown"',
            '"data":' || coalesce(canonical(json_extract(b, '$.data')), 'null'),
            '"model_name":' || spelled(coalesce(member_text(b, '$.model_name'), qualifier(b, 1))),
            '"provider_name":' || spelled(coalesce(member_text(b, '$.provider_name'), qualifier(b, 2)))) || '}'
        ELSE unknown_block(b) END END;

-- The content of a list of blocks; NULL when it is no list. A text alone, or an object, is one block.
CREATE OR REPLACE MACRO as_content(blocks) AS '[' || array_to_string(list_transform(from_json(CASE json_type(blocks)
    WHEN 'ARRAY' THEN blocks::VARCHAR WHEN 'VARCHAR' THEN '[' || blocks || ']' WHEN 'OBJECT' THEN '[' || blocks || ']' END,
    '["JSON"]'), lambda block: as_block(block)), ',') || ']';

-- One message; NULL when it has no role or no content.
CREATE OR REPLACE MACRO as_message(m) AS CASE WHEN m->>'$.role' IN ('system', 'user', 'assistant', 'tool') THEN
    '{"role":"' || (m->>'$.role') || '","content":' || as_content(json_extract(m, '$.content')) || '}' END;

-- A list of messages; NULL when it is none, or when one of them is not a message.
CREATE OR REPLACE MACRO as_messages(messages) AS CASE WHEN json_type(messages) = 'ARRAY' THEN
    list_transform([list_transform(from_json(messages, '["JSON"]'), lambda message: as_message(message))],
        lambda whole: CASE WHEN list_count(whole) = len(whole) THEN '[' || array_to_string(whole, ',') || ']' END)[1] END;

-- The messages that a model saw, system first, as the text of a JSON list: from a list that is spelled already, and from
-- any other; NULL when they are not messages.
CREATE OR REPLACE MACRO plain_prompt(system_text, messages) AS
    '[' || CASE WHEN system_text IS NULL THEN '' ELSE
        '{"role":"system","content":[' || text_block(system_text) || ']}'
        || CASE WHEN messages = '[]' THEN '' ELSE ',' END END
    || substr(messages, 2);

CREATE OR REPLACE MACRO as_prompt(system_text, messages) AS plain_prompt(system_text, as_messages(messages));
