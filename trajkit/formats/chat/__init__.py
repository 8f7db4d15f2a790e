"""Chat messages as several formats share them: content parts, requests, turns, thoughts."""
