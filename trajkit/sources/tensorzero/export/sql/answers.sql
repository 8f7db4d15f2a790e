-- Answers that are not just a text: with tool calls, with thoughts, or in several blocks.
--
-- Reads: spooled_inference. Fills: unusual_answer. The expressions are long to plan, and many buckets have no such row.

INSERT INTO unusual_answer
SELECT input_row, as_thoughtful_answer(json_extract_string(output, '$.raw'), auxiliary_content),
    coalesce(json_type(output, '$.parsed'), 'NULL') = 'NULL', json_extract(output, getvariable('action_path'))
FROM spooled_inference
WHERE function_type = 'json' AND is_unusual(function_type, auxiliary_content);

INSERT INTO unusual_answer
SELECT input_row, as_chat_answer(output), is_invalid_chat(output),
    CASE WHEN contains(output, '"tool_call"') THEN nullif(
        to_json(list_transform(tool_calls(output), lambda call: as_action(call))), '[]'::JSON) END
FROM spooled_inference
WHERE function_type <> 'json' AND NOT coalesce(is_one_text(output), false);
