"""Make the files of a store for the Hub, and restore a store from them."""

__all__ = ["contents"]
