"""`trajkit kto local`: tune a model on good and bad answers, on this machine."""

from __future__ import annotations

from typing import Any

import click

from trajkit.cli import preference, training
from trajkit.cli.local_options import base_option, output_options, recipe_options, template_options
from trajkit.cli.option import thoughts_option


@click.command()
@training.side_options("PAIRS|STORE", last=f"{preference.LAST_PAIRS}, else the last store", cut_by="group")
@base_option
@template_options
@click.option("--good", metavar="SQL", help="Of a store: the episodes whose answers are good.")
@click.option("--beta", type=float, help="The higher, the nearer it stays to the model.  [default: 0.1]")
@click.option(
    "--loss-type", type=click.Choice(["kto", "apo_zero_unpaired"]), help="The loss.  [default: kto]"
)
@click.option("--desirable-weight", type=float, help="How much a good answer counts.  [default: 1]")
@click.option("--undesirable-weight", type=float, help="How much a bad one does.  [default: 1]")
@recipe_options(
    n_epochs="1",
    learning_rate="0.00001",
    row="a prompt with its answer",
    such_as="weight_decay=0.01",
)
@output_options
@thoughts_option
@training.job_options
def local(**asked: Any) -> int:
    """Tune a model on this machine: good answers become more probable, and bad ones less.

    Answers need no partner: those of a store are good where their episode succeeded (or where --good says so)
    and bad where it failed; of pairs each side is one. The prompt is not learned, the end of an answer is,
    and nothing is cut off or dropped. The plan comes first. Ctrl-C stops the waiting and not the training,
    which has a process of its own.

    \b
    trajkit kto local --train stores/goto --good "episode_return > 0.7" --model Qwen/Qwen3-0.6B
    """  # noqa: D301 -- click looks for the backspace itself: it keeps the lines below it as they are
    return preference.train_here("kto", asked, "beta", "loss_type", "desirable_weight", "undesirable_weight")
