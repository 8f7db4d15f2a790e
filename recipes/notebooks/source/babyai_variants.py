# %% [markdown]
# # An agent that walks through mazes: four prompts, good episodes, a tuned model
#
# A gateway plays BabyAI with four ways to prompt. The good episodes become a training set, a local model
# learns from it, and both are measured on worlds that no model has learned.
#
# Needs `trajkit[stack,babyai,local,report]`; no key, no network, no GPU. The model behind the gateway is a
# **rule player, not a language model**: `trajkit.up(model="openai::gpt-4.1-mini")` replaces it with a
# real one. The model that learns has 250,000 weights. So the numbers show that each step works, and not how
# good an agent can be.

# %%
import trajkit

stack = trajkit.up()
VARIANTS = ["baseline", "reasoning", "history", "history_and_reasoning"]

# %% [markdown]
# ## Worlds to measure by
#
# Reserved seeds are refused by every training rollout and every training job.

# %%
(held_out,) = trajkit.reserve("babyai", seeds="200:205", task="goto")
print(held_out.reservation)

# %% [markdown]
# ## Play
#
# Every episode has a seed. Inferences and feedback go to the gateway's database, each marked with what it
# was for.

# %%
played = trajkit.rollout("babyai", task="goto", variant=VARIANTS, seeds="0:8", history=8)
for row in played.rows:
    print(f"{row.variant:24}success {row.success.mean:.2f} ± {row.success.standard_error:.2f}")

# %% [markdown]
# ## Keep the good episodes
#
# The bound is compared in the database. What is left out is counted.

# %%
good = trajkit.export(metric="episode_return", min=0.7, output="stores/good")
good.dataset

# %%
good.dataset.episode("0")

# %% [markdown]
# ## Two sides that share nothing
#
# Whole worlds go to one side: at most four episodes measure, and at most sixteen are learned.

# %%
sides = trajkit.split(good.path, ratio={"train": 16, "val": 4}, output="stores/sides")
train, val = sides.made["train"], sides.made["val"]
print("leaks:", trajkit.leak(train, val).leaks)
train

# %% [markdown]
# ## Tune
#
# `trajkit.sft_openai(...)` would do the same at a service, and only with `yes=True`.

# %%
job = trajkit.sft_local(
    model="sample:tiny-base", train=train, val=val, learning_rate=5e-3, max_steps=12, seed=0, name="tuned"
)
print(job.status, f"after {job.result['n_steps']} steps")

# %% [markdown]
# ## Before and after, on the held-out worlds
#
# The same worlds for both, paired; differences have intervals. With five worlds these are wide, and say so.

# %%
measured = trajkit.evaluate(
    "babyai",
    task="goto",
    seeds="200:205",
    variants="base=sample:tiny-base,tuned=tuned",
    template_variant="history_and_reasoning",
    decoding="greedy",
    history=8,
    max_steps=20,
    output="stores/measured",
)
measured.report

# %% [markdown]
# ## The four prompts against each other
#
# The same comparison through the gateway.

# %%
prompts = trajkit.evaluate(
    "babyai", task="goto", seeds="200:205", variants=VARIANTS, history=8, output="stores/prompts"
)
prompts.report

# %%
stopped = trajkit.down(delete_data=True)
