"""The report of an evaluation: text, Markdown, page and charts."""
