"""The command `trajkit`: finds the subcommand, and turns errors into one line, a hint and an exit code."""

from __future__ import annotations

import gc
import importlib
import keyword
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import click

import trajkit
from trajkit._core.arguments import hide_passwords
from trajkit._core.memory import prefer_little_memory
from trajkit._core.outside import visible
from trajkit._core.secrets import hidden
from trajkit.cli.output import error_line, usage_error
from trajkit.errors import TrajkitError

# name -> (module, what --help of the group says); loaded only when called, so that --help stays quick
COMMANDS = {
    "up": ("up", "Start the local services: ClickHouse with TensorZero's schema, and a stand-in model."),
    "status": ("up", "Show the local services."),
    "down": ("up", "Stop the local services."),
    "rollout": ("rollout", "Play seeded episodes of an environment with a policy."),
    "check-env": ("check_env", "Check that an environment keeps what every environment promises."),
    "export": ("export", "Turn logged inferences and feedback into a store."),
    "archive": ("archive", "Copy a TensorZero database into a folder that needs none."),
    "info": ("info", "Describe a store, or what a database holds."),
    "show": ("show", "Print one episode of a store."),
    "query": ("query", "Ask a store with one SQL SELECT."),
    "stats": ("stats", "Numbers about a dataset, with their intervals."),
    "select": ("select", "Choose episodes, with a control to compare against."),
    "dedupe": ("dedupe", "Leave out what is there more than once."),
    "split": ("split", "Cut a store into sides that share nothing."),
    "merge": ("merge", "Put the episodes of several stores into one."),
    "leak": ("leak", "Check that two stores share nothing that would spoil a measurement."),
    "reserve": ("reserve", "Keep seeds for evaluation."),
    "mask": ("mask", "Keep steps as context that are not worth learning."),
    "weight": ("weight", "Give each step its weight in training."),
    "redact": ("redact", "Take secrets and personal data out of a store."),
    "pairs": ("pairs", "Write preference pairs from the episodes of a store."),
    "score": ("score", "Add a metric from a function of your own."),
    "replay": ("replay", "Play a store's episodes again and compare every value."),
    "import": ("import_", "Bring in files that other tools wrote."),
    "convert": ("convert", "Write a training file from a store."),
    "sft": ("sft", "Tune a model on the steps of a store."),
    "dpo": ("dpo", "Tune a model on pairs of a better and a worse answer."),
    "kto": ("kto", "Tune a model on answers that are good or bad."),
    "jobs": ("jobs", "List, watch, end and resume fine-tuning jobs."),
    "try": ("try_", "Print what a tuned model and its base answer to one prompt of a store."),
    "serve": ("serve", "Serve tuned models of this machine as an OpenAI-compatible API."),
    "register": ("register", "Add a tuned model to a gateway's configuration as a variant."),
    "evaluate": ("evaluate", "Compare variants on held-out seeds."),
    "report": ("report", "Say how variants did and how they differ, with charts."),
    "lineage": ("lineage", "Say what a model learned from, and which models saw an episode."),
    "validate": ("validate", "Say what a service or a trainer would refuse in a training file."),
    "tokens": ("tokens", "Count the tokens of a training file, and what they cost."),
    "view": ("view", "Look at episodes in a browser of this machine."),
    "push": ("push", "Publish stores or a tuned model on the Hugging Face Hub."),
    "pull": ("pull", "Read a dataset from the Hugging Face Hub into a store."),
    "run": ("run", "Run a recipe: several commands from one YAML file."),
    "doctor": ("doctor", "Say what is installed, configured and reachable, and what to do."),
    "completion": ("completion", "Print the script that lets a shell complete."),
}


STOPPED = 130
"""Exit code of a command that Ctrl-C ended: 128 and the number of the signal."""


class Commands(click.Group):
    """A group that imports a subcommand's module when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they are used."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"trajkit.cli.{COMMANDS[cmd_name][0]}")
        name = cmd_name.replace("-", "_")
        command = getattr(module, f"{name}_" if keyword.iskeyword(name) else name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(trajkit.__version__, prog_name="trajkit")
@click.option("--debug", is_flag=True, help="Show the traceback of an error, and what the library logs.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Turn what an LLM agent lived through into a better agent."""
    ctx.obj = {"debug": debug}
    if debug:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_WithoutSecrets("%(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    else:
        # without any handler Python prints other libraries' warnings on stderr, between our own lines
        logging.getLogger().addHandler(logging.NullHandler())


class _WithoutSecrets(logging.Formatter):
    """Writes what libraries log, which may be an address with a password or a header with a key."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, with the traceback that belongs to it."""
        return _safe(super().format(record))


def _safe(text: str) -> str:
    """Tracebacks and logs without the values that libraries quote in them."""
    typed = (word.partition("=")[2] if word.startswith("-") else word for word in sys.argv[1:])
    return visible(hidden(text, *(word for word in typed if "://" in word)), is_line=False)


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(_safe("".join(traceback.format_exception(kind, error, trace))))


def _print_of_thread(of: threading.ExceptHookArgs) -> None:
    if of.exc_value is not None and of.exc_type is not SystemExit:
        _print_traceback(of.exc_type, of.exc_value, of.exc_traceback)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    if "_TRAJKIT_COMPLETE" in os.environ:
        from trajkit.cli.completion import answer

        answer()
    if arguments is None:
        hide_passwords()
    sys.excepthook = _print_traceback
    threading.excepthook = _print_of_thread
    prefer_little_memory()
    gc.set_threshold(50_000, 20, 100)  # imports make many objects and no garbage: looking for it takes time
    sys.exit(run(sys.argv[1:] if arguments is None else arguments, when_stopped=_leave_at_once))


def _leave_at_once() -> int:
    """End the process while the exception of a Ctrl-C still holds the frames that it cut off.

    What could be cleaned up is. The rest (an event loop or a context manager that was just about to begin)
    would only make libraries complain on stderr when it is collected.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


def run(arguments: list[str], *, when_stopped: Callable[[], int] = lambda: STOPPED, **extra: Any) -> int:
    """Run one command; return its exit code. Errors are printed on stderr."""
    debug = "--debug" in arguments
    if (reader := sys.modules.get("trajkit.store.reader")) is not None:
        reader.LAST_OPENED.clear()
    try:
        result = cli.main(args=arguments, prog_name="trajkit", standalone_mode=False, **extra)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.UsageError as error:
        usage_error(error)
        return 2
    except (click.Abort, KeyboardInterrupt):
        error_line("stopped")
        return when_stopped()
    except TrajkitError as error:
        if debug:
            raise
        error_line(hidden(error.message), hint=error.hint and hidden(error.hint))
        return error.exit_code
    except BrokenPipeError:
        # the reader went away (`| head`): not an error; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        # a bug, unless a store that was read holds what no store may hold: then say where
        if debug or (found := _damage()) is None:
            raise
        error_line(found.message, hint=found.hint)
        return found.exit_code


def _damage() -> TrajkitError | None:
    """What is wrong with a store that this process read, which only then need be imported."""
    if "trajkit.store.reader" not in sys.modules:
        return None
    from trajkit.store.damage import last_damage

    return last_damage()
