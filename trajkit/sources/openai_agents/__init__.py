"""Traces of the OpenAI Agents SDK, as JSON lines from its trace processors."""
