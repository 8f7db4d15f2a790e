-- What the environment showed: the template argument, else the last text, of the last message of the user. Needs
-- `macros.sql`, and the variables observation_path, message_observation_path, legacy_observation_path.

-- The last message of the user in a structured input.
CREATE OR REPLACE MACRO last_user(input) AS
    list_last(list_filter(from_json(json_extract(input, '$.messages'), '["JSON"]'),
        lambda message: message->>'$.role' = 'user'));

-- Of JSON values the last one that is something, as text: a string's own text, anything else as canonical JSON.
CREATE OR REPLACE MACRO last_text(values_found) AS
    list_last(list_filter(list_transform(values_found, lambda found_value: CASE
        WHEN json_type(found_value) = 'VARCHAR' THEN found_value->>'$' ELSE canonical(found_value) END),
        lambda found_text: found_text IS NOT NULL));

-- That of an input of the usual shape (the user spoke last, in one block); NULL for any other.
-- `found` is what it has at: role, observation, text, second block.
CREATE OR REPLACE MACRO if_usual(found) AS
    CASE WHEN found[1] = 'user' AND found[4] IS NULL AND coalesce(found[2][1] NOT IN ('{', '['), true)
        THEN coalesce(found[2], found[3]) END;

CREATE OR REPLACE MACRO usual_observation(input) AS if_usual(json_extract_string(input, [
    '$.messages[#-1].role', getvariable('observation_path'), '$.messages[#-1].content[0].text',
    '$.messages[#-1].content[1].type']));

-- That of any input. It is long to plan.
CREATE OR REPLACE MACRO any_observation(input) AS coalesce(
    last_text(json_extract(last_user(input), getvariable('message_observation_path'))),
    last_text(json_extract(last_user(input), getvariable('legacy_observation_path'))),
    last_text(json_extract(last_user(input), '$.content[*].text')),
    last_text(json_extract(last_user(input), '$.content[*].value')),
    CASE WHEN json_type(last_user(input), '$.content') = 'VARCHAR' THEN last_user(input)->>'$.content' END,
    last_user(input)->>'$.content.text');
