"""Which files of a store go to the Hub, and how a store is restored from them."""

__all__ = ["contents"]
