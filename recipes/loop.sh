#!/usr/bin/env bash
# recipes/babyai_local.yaml in a folder of its own: a small model gets better by its own good
# episodes, with a control, and then by reinforcement learning.
#
# needs    trajkit[stack,babyai,local,serve,report] on the PATH; no key and no network
# minutes  6 to 15 on two cores
# cost     none
# leaves   the folder that it is given: the database, and run/ with stores, models, evaluation and report
#
# `make loop` runs it in loop/; `make loop THROUGH=gateway` measures through the gateway and not in process. It
# skips finished steps: after a kill the same command continues, and when all is done it shows the result again.
# `bash recipes/loop.sh FOLDER process --set rollouts.seeds=0:40` plays less: what follows is for `trajkit run`.
set -euo pipefail

recipe=$(cd "$(dirname "$0")" && pwd)/babyai_local.yaml
folder=${1:-loop}
through=${2:-process}
unset TENSORZERO_CLICKHOUSE_URL TENSORZERO_GATEWAY_URL TENSORZERO_POSTGRES_URL  # the loop plays on its own database

goal=run
more=()
if [ "$through" = gateway ]; then
    goal=run-through-gateway
    more=(--set evaluated.through=gateway --set evaluated.template_variant=null
        --set evaluated.variants=baseline,baseline_control,baseline_sft --set evaluated.concurrency=64)
fi

mkdir -p "$folder"
cd "$folder"
touch trajkit.toml  # the worlds that are reserved for evaluation are recorded here
trap 'trajkit down >/dev/null 2>&1 || true' EXIT

was_done=0
[ -d "$goal/compared" ] && was_done=1
trajkit run "$recipe" -o "$goal" --yes "${more[@]}" "${@:3}"
[ "$was_done" = 0 ] || trajkit report "$goal/evaluated" --baseline baseline --baseline baseline_control --baseline baseline_sft --runs "$goal/runs"
