"""Play seeded episodes of an environment with a policy, and keep what happened."""

from trajkit._verb import make_callable

make_callable(__name__, "trajkit.verbs.rollout")
