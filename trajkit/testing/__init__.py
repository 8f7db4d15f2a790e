"""Contract suites for what packages outside bring to trajkit."""

from trajkit.testing.source import SourceContract as SourceContract
