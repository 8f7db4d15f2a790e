"""Traces of the OpenAI Agents SDK, as lines of the items that its trace processors export."""
