"""Write the lines of a training file, as columns or one by one."""

__all__ = ["pairs"]
