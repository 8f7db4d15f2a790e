# %% [markdown]
# # A model learns to cook from an expert
#
# TextWorldExpress' cookingworld: an expert plays, its finished episodes become a table of transitions and a
# training set, a local model learns from them with LoRA, and is measured before and after in other
# worlds.
#
# Needs `trajkit[textworld,local,report]` and Java 17 or newer; no key, no network, no GPU. The model has
# 250,000 weights and has read nothing but BabyAI: it does **not** learn to cook in a minute. Use
# `model="Qwen/Qwen3-0.6B"` instead, with hundreds of worlds, for one that may.

# %%
import trajkit

# %% [markdown]
# ## Demonstrations
#
# The expert needs up to some thirty steps: where episodes are cut off earlier, half of the demonstrations
# stop before the meal. What did not reach the goal is left out, and counted.

# %%
played = trajkit.rollout(
    "textworld", task="cookingworld", policy="expert", seeds="0:6", max_steps=100, output="stores/played"
)
complete = trajkit.select(played.path, where="outcome = 'success'", output="stores/complete")
complete

# %%
complete.dataset.episode("0")

# %% [markdown]
# ## Transitions
#
# A row for each step: what was seen, what was done, what came back. Each episode ends once.

# %%
table = trajkit.convert(complete, to="transitions", output="transitions.parquet")
print(f"{table.n_rows} transitions")

# %% [markdown]
# ## Learn
#
# Whole episodes go to one side: transitions that are cut at random would put neighbours on both.

# %%
sides = trajkit.split(complete, ratio={"train": 5, "val": 1}, output="stores/sides")
job = trajkit.sft_local(
    model="sample:tiny-base",
    train=sides.made["train"],
    val=sides.made["val"],
    r=4,
    lora_alpha=32,
    lora_dropout=0.25,
    learning_rate=5e-5,
    per_device_train_batch_size=2,
    max_length=4096,
    overlong="drop",
    max_steps=4,
    seed=0,
    name="cook",
)
print(job.status, f"validation loss {job.result['eval_loss']:.3f}")

# %% [markdown]
# ## Before and after
#
# In worlds of another fold: the same seed in another fold is another world.

# %%
measured = trajkit.evaluate(
    "textworld",
    task="cookingworld-dev",
    variants="base=sample:tiny-base,tuned=cook",
    seeds="10000:10002",
    decoding="greedy",
    max_steps=6,
    policy_set={"max_new_tokens": 24},
    output="stores/measured",
)
measured.report
