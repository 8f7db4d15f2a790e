# %% [markdown]
# # Rounds of playing and learning
#
# A policy plays, its episodes are weighted by their returns, it learns from them, and the better policy
# plays again. This needs no reinforcement learning (`trajkit rl local` has that), and it is **not**
# proximal policy optimization: there is no critic, no clipped ratio, and no gradient between one action and
# the next. Each round is a weighted imitation of what the policy of this round did well (advantage-weighted
# regression, with the mean return of a world as its baseline).
#
# Needs `trajkit[babyai,local,report]`; no key, no network, no GPU. The policy has 250,000 weights and two
# rounds are short: the last table shows how uncertain the results are.

# %%
import trajkit
from trajkit.stack.local import recipe_config

CONFIG = recipe_config("babyai")
PROMPTS = {"config": CONFIG, "function": "act", "task": "goto", "history": 8, "max_steps": 20}
(held_out,) = trajkit.reserve("babyai", seeds="200:208", task="goto")

# %% [markdown]
# ## A round
#
# Sampling at temperature 1 is what explores. Each world is tried several times, so that the baseline of a
# world is a mean over its own attempts. Attempts that were all alike weigh nothing; what did better than its
# world's mean counts more, up to a limit.


# %%
def play_and_learn(model: str, number: int) -> trajkit.Dataset:
    attempts = [
        trajkit.rollout(
            "babyai",
            policy="local",
            model=model,
            variant="history_and_reasoning",
            policy_set={"temperature": 1, "max_new_tokens": 48},
            seeds="0:8",
            run_seed=10 * number + attempt,
            output=f"stores/round{number}-{attempt}",
            **PROMPTS,
        )
        for attempt in range(2)
    ]
    everything = trajkit.merge([one.path for one in attempts], output=f"stores/round{number}")
    masked = trajkit.mask(everything, reason=["unparsed", "invalid"], output=f"stores/masked{number}")
    weighted = trajkit.weight(
        masked, scheme="exponential", temperature=0.2, clip=5, output=f"stores/weighted{number}"
    )
    trajkit.sft_local(
        model="sample:tiny-base",
        train=weighted,
        val_fraction=0,
        learning_rate=2e-3,
        max_steps=10,
        seed=0,
        name=f"round{number}",
    )
    return weighted.dataset


# %%
first = play_and_learn("sample:tiny-base", 1)
first

# %%
second = play_and_learn("round1", 2)
second

# %% [markdown]
# ## How the returns moved
#
# Of the episodes played for training, which shows something about the policies but nothing about worlds that
# they have not seen.

# %%
for number in (1, 2):
    found = trajkit.query(
        f"stores/round{number}",
        "select count(*) n, avg(metrics.episode_return) mean from episodes",
    )
    print(f"round {number}: {found[0]['n']} episodes, mean return {found[0]['mean']:.3f}")

# %% [markdown]
# ## Held-out worlds
#
# The same worlds for all three, pair by pair. Eight worlds are too few for an interval, and the report says
# so: an answer takes hundreds of them, more rounds, and several training seeds.

# %%
measured = trajkit.evaluate(
    "babyai",
    variants="base=sample:tiny-base,first=round1,second=round2",
    template_variant="history_and_reasoning",
    seeds="200:208",
    decoding="greedy",
    output="stores/measured",
    **PROMPTS,
)
measured.report
