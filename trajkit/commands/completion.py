"""Print a completion script for a shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from click.shell_completion import FishComplete, ZshComplete

from trajkit._core.output.result import Result

PROGRAM = "trajkit"
ASKED = "_TRAJKIT_COMPLETE"
"""The variable by which a shell requests completions; click reads it."""

_BASH = """\
%(complete_func)s() {
    local kind value
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            plain)
                [[ $value == *' '* ]] && printf -v value %%q "$value"
                COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done < <(
        _TRAJKIT_LINE="${COMP_LINE:0:COMP_POINT}" _TRAJKIT_BREAKS="$COMP_WORDBREAKS" \\
            %(complete_var)s=bash_complete "$1" 2>/dev/null
    )
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""
"""click's own script passes words that bash splits at every colon and equals sign."""

_TEMPLATES = {"bash": _BASH, "zsh": ZshComplete.source_template, "fish": FishComplete.source_template}


@dataclass(frozen=True)
class Script(Result):
    """A script for a shell."""

    shell: str
    """The shell."""
    text: str
    """The script."""

    def to_json(self) -> dict[str, str]:
        """The shell and the script."""
        return {"shell": self.shell, "script": self.text}

    def __str__(self) -> str:
        return self.text


def completion(shell: Literal["bash", "zsh", "fish"]) -> Script:
    """Print a completion script for SHELL: commands, options, and known values.

    Values are the stores and jobs of the folder, samples, environments and their tasks, functions, variants
    and metrics of the gateway's configuration, formats, and recipes.

        bash: trajkit completion bash > ~/.local/share/bash-completion/completions/trajkit
        zsh:  trajkit completion zsh > ~/.zfunc/_trajkit, with fpath+=~/.zfunc before compinit in ~/.zshrc
        fish: trajkit completion fish > ~/.config/fish/completions/trajkit.fish

    For this shell alone: source <(trajkit completion bash).

    Args:
        shell: The shell.
    """
    names = {"complete_func": f"_{PROGRAM}_completion", "complete_var": ASKED, "prog_name": PROGRAM}
    return Script(shell, (_TEMPLATES[shell] % names).rstrip())
