"""`trajkit dpo local`: tune a model on pairs, on this machine."""

from __future__ import annotations

from typing import Any

import click

from trajkit.cli import preference, training
from trajkit.cli.local_options import base_option, output_options, recipe_options, template_options
from trajkit.cli.option import thoughts_option


def _none_given(context: click.Context, parameter: click.Parameter, given: tuple[Any, ...]) -> Any:
    """Options that were not given say nothing."""
    return given or None


@click.command()
@training.side_options("PAIRS", last=preference.LAST_PAIRS, cut_by="group")
@base_option
@template_options
@click.option("--beta", type=float, help="The higher, the nearer it stays to the model.  [default: 0.1]")
@click.option(
    "--loss-type",
    multiple=True,
    callback=_none_given,
    metavar="NAME",
    help="sigmoid, ipo, hinge, robust, apo_zero …; may be repeated.  [default: sigmoid]",
)
@click.option("--label-smoothing", type=float, help="robust: share of pairs that are the wrong way round.")
@recipe_options(
    n_epochs="1",
    learning_rate="0.00001",
    row="a prompt with its answer",
    such_as="loss_weights=[1,0.2], ld_alpha=0.5, use_weighting=true",
)
@output_options
@thoughts_option
@training.job_options
def local(**asked: Any) -> int:
    """Tune a model on this machine: the better answer of each pair becomes more probable than the worse one.

    The pairs are those of `trajkit pairs`. Both are measured against the model that it starts from. The
    prompt is not learned, the end of an answer is, and nothing is cut off or dropped. The plan comes first.
    Ctrl-C stops the waiting and not the training, which has a process of its own.

    \b
    trajkit pairs --margin 0.1
    trajkit dpo local --model Qwen/Qwen3-0.6B
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    return preference.train_here("dpo", asked, "beta", "loss_type", "label_smoothing")
