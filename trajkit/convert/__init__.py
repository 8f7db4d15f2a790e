"""Training files from episodes: which steps are learned, as which lines, and what was left out."""

from trajkit._verb import make_callable

make_callable(__name__, "trajkit.verbs.files")
