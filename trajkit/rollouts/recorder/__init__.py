"""Record the calls of any OpenAI client in a user's own code as episodes of a store."""
