"""Compare variants of an agent on held-out seeds, and report how they did."""

from trajkit._verb import make_callable

make_callable(__name__, "trajkit.verbs.evaluate")
