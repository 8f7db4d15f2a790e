"""Chat messages as several formats share them: content parts, requests, turns, thoughts."""

__all__ = ["conversation", "message", "parts", "request", "response_items", "rows", "think", "turns"]
