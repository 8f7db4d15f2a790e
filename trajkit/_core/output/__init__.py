"""Output for people: console lines, notebook pages, and results that show themselves."""

__all__ = ["console", "notebook", "page", "result"]
