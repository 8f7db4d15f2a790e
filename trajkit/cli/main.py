"""The command `trajkit`: finds the subcommand, and turns errors into one line, a hint and an exit code."""

from __future__ import annotations

import difflib
import gc
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import click

from trajkit import JOBS
from trajkit._core.output import console
from trajkit._core.output.console import error_line, usage_error
from trajkit._core.process.arguments import hide_passwords
from trajkit._core.process.memory import prefer_little_memory
from trajkit._core.secrets import hidden
from trajkit.commands.catalog import load, short_help
from trajkit.commands.options.flags import everywhere, show_logs, without_secrets
from trajkit.errors import TrajkitError

STOPPED = 130
"""Exit code of a command that Ctrl-C ended: 128 and the number of the signal."""


class Commands(click.Group):
    """Commands that are imported when they are called; their short help is read from the source."""

    def __init__(self, *arguments: Any, jobs: Mapping[str, Sequence[str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._jobs = jobs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order in which they are used."""
        return [name for names in self._jobs.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command; None if there is no such command."""
        return load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; a mistyped name gets a suggestion."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by job without importing them."""
        width = max(map(len, self.list_commands(ctx)))
        for job, names in self._jobs.items():
            with formatter.section(job):
                formatter.write_dl([(name.ljust(width), short_help(name)) for name in names])


@click.group(
    cls=Commands,
    jobs=JOBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error, and what the libraries log.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Turn the logs of an LLM agent into a better agent."""
    if debug:
        show_logs()
    else:
        # without any handler Python prints other libraries' warnings on stderr, between our own lines
        logging.getLogger().addHandler(logging.NullHandler())
    ctx.with_resource(console.opened())


cli.params[:0] = everywhere()


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(without_secrets("".join(traceback.format_exception(kind, error, trace))))


def _print_of_thread(of: threading.ExceptHookArgs) -> None:
    if of.exc_value is not None and of.exc_type is not SystemExit:
        _print_traceback(of.exc_type, of.exc_value, of.exc_traceback)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    if "_TRAJKIT_COMPLETE" in os.environ:
        from trajkit.cli.shell import answer

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
    """The damage in a store that this process read; imported only if it read one."""
    if "trajkit.store.reader" not in sys.modules:
        return None
    from trajkit.store.damage import last_damage

    return last_damage()
