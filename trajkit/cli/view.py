"""`trajkit view`: a page to look at episodes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trajkit._core import console
from trajkit.commands.place import last_store


@click.command()
@click.argument("stores", metavar="[STORE]...", nargs=-1)
@click.option("--where", metavar="CONDITION", help="Show these episodes first, as in `select`.")
@click.option("--port", type=click.IntRange(0, 65535), help="On loopback.  [default: a free one]")
@click.option(
    "--browser/--no-browser", default=None, help="Open it in a browser.  [default: from a terminal]"
)
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write the page as one file.")
@click.option("--limit", type=click.IntRange(min=1), help="Most episodes in the file.  [default: 200]")
@click.option("--json", "as_json", is_flag=True, help="Print the address, or what was written, as JSON.")
def view(
    stores: tuple[str, ...],
    where: str | None,
    port: int | None,
    browser: bool | None,
    html: Path | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Look at the episodes of STORE in a browser, until Ctrl-C; without one, of the last store written here.

    Several stores are shown together, such as those of a model before and after its training. The page is
    served on this machine for this machine. With --html it is a file instead, with its first episodes inside.

    \b
    trajkit view sample:babyai
    trajkit view stores/before stores/after --where "task = 'goto'"
    trajkit view stores/tuned --html tuned.html --limit 50
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    if html is None and limit is not None:
        raise click.UsageError("--limit is for --html: the page itself shows all")
    for name, value in (("--port", port), ("--browser", browser)):
        if html is not None and value is not None:
            raise click.UsageError(f"{name} is for a page that is served, and --html writes a file")
    named = stores or (str(last_store(console.talk)),)
    if html is not None:
        _write(named, where, html, limit, as_json)
        return
    is_opened = _has_browser() if browser is None else browser
    _serve(named, where, port or 0, browser=is_opened, as_json=as_json)


def _serve(stores: tuple[str, ...], where: str | None, port: int, *, browser: bool, as_json: bool) -> None:
    from trajkit._core.memory import at_most, half_of_the_machine
    from trajkit.viewer.view import view as view_stores

    with (
        at_most(half_of_the_machine()),
        view_stores(*stores, where=where, port=port, browser=browser) as viewer,
    ):
        if as_json:
            console.result_json_line({"url": viewer.url, "pid": os.getpid()})
        else:
            console.result(viewer.url)
        console.talk(f"{console.plural(viewer.n_episodes, 'episode')}; Ctrl-C ends it")
        sys.stdout.flush()
        viewer.wait()
    console.talk("ended")


def _write(stores: tuple[str, ...], where: str | None, html: Path, limit: int | None, as_json: bool) -> None:
    from trajkit.viewer.view import view as view_stores

    found = view_stores(*stores, where=where, html=html, limit=limit)
    if as_json:
        console.result_json({**found._asdict(), "path": str(found.path)})
    else:
        n_episodes = console.plural(found.n_episodes, "episode")
        console.result(f"{found.path}  {n_episodes}  {console.size(found.n_bytes)}")
    if found.note is not None:
        console.talk(found.note)


def _has_browser() -> bool:
    """Whether somebody sits before a screen: a browser inside a terminal would take the terminal away."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    is_graphic = sys.platform in ("darwin", "win32") or any(map(os.environ.get, screens))
    return sys.stdout.isatty() and is_graphic
