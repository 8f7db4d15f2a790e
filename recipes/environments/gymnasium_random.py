"""Play BabyAI through Gymnasium with random actions.

needs: pip install 'trajkit[babyai,gymnasium]'; no key, no network, no GPU
minutes: under 1
cost: none
leaves: nothing
"""

from trajkit.environments.adapters import gymnasium_env

env = gymnasium_env("babyai", "goto")
for seed in range(5):
    observation, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    total, is_over = 0.0, False
    while not is_over:
        observation, reward, terminated, truncated, step_info = env.step(env.action_space.sample())
        total, is_over = total + float(reward), terminated or truncated
    print(f"seed {seed}: {info['mission']}: return {total:.3f}")
env.close()
