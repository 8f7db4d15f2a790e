#!/usr/bin/env bash
# The main job on this machine: play BabyAI through the gateway, export the good episodes, write a training file.
# Then the loop, in process and small: a tiny language model plays, is tuned on its good episodes, and is measured.
#
# needs    trajkit[stack,babyai,local] on the PATH; no key and no network
# minutes  5
# cost     none: the model at the gateway is a rule player, not a language model
# leaves   the folder that it is given: the database, the stores, train.jsonl, and the tuned model in runs/
#
# `make demo` runs it in demo/. It starts from scratch each time, and the same seeds give the same answers.
set -euo pipefail

folder=${1:-demo}
unset TENSORZERO_CLICKHOUSE_URL TENSORZERO_GATEWAY_URL TENSORZERO_POSTGRES_URL  # the demo plays on its own database

run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

mkdir -p "$folder"
cd "$folder"
if [ -f .trajkit/stack.json ]; then
    trajkit down >/dev/null 2>&1 || true
fi
rm -rf .trajkit stores train.jsonl runs
touch trajkit.toml
trap 'trajkit down >/dev/null 2>&1 || true' EXIT

run trajkit up
run trajkit rollout babyai --variant history_and_reasoning --episodes 6 --seed 0 --purpose train \
    --concurrency 50 -o stores/rollouts
run trajkit rollout babyai --task goto --variant history_and_reasoning --episodes 4 --seed 1000 --purpose eval \
    --concurrency 50 -o stores/held-out
run trajkit export --metric episode_return --min 0.7
good=$(echo stores/episode_return-*)
run trajkit info
run trajkit show "$good" 0
run trajkit convert --to openai-sft -o train.jsonl
run trajkit rollout babyai --task goto --task pickup --policy local --model sample:tiny-base --function act \
    --variant baseline --config .trajkit/stack/config/tensorzero.toml --episodes 60 --seed 0 --purpose train -o stores/own
run trajkit select stores/own --where 'episode_return > 0.5' -o stores/own-good
run trajkit sft local --train stores/own-good --val-fraction 0 --model sample:tiny-base --learning-rate 5e-3 \
    --max-steps 150 --per-device-train-batch-size 32 --name own-good --yes
run trajkit evaluate babyai --task goto --task pickup --variants before=sample:tiny-base,after=own-good \
    --template-variant baseline --decoding temperature=1 --decoding temperature=0.5 --seeds 1000:1030 -o stores/own-measured
run trajkit down
trap - EXIT

cat <<EOF

In $PWD:
  stores/rollouts   every episode that was played to train, with what only the environment knows: reward per step
  stores/held-out   the evaluation episodes; the export counted them and left them out
  $good
                    the episodes whose return is at least 0.7
  train.jsonl       one training row per step, in OpenAI's chat format
  stores/own…       what the tiny model played, the good episodes of it, and before and after on held-out worlds
  runs/own-good     the tuned model
  .trajkit/         the database and the configuration of the gateway

The model that played through the gateway is a rule player, not a language model. Next, in that folder:
  trajkit query stores/rollouts "select task, avg(total_reward) from episodes group by task order by task"
  trajkit show $good 1
  trajkit up && trajkit export --metric progression --min 1
  OPENAI_API_KEY=... trajkit up --model openai::gpt-4.1-mini
EOF
