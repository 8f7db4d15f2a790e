"""Worlds of trajkit as a taskset of verifiers, for its evaluations and trainers.

needs: a Python environment of its own, as verifiers needs an older openai than trajkit is tested with:
    pip install 'trajkit[babyai]' 'verifiers==0.4.0' uv; a model behind an OpenAI-compatible address
minutes: depends on the model
cost: the model's tokens
leaves: traces in outputs/

In this folder (verifiers finds the taskset by the name of this module):
    PYTHONPATH=. vf-eval verifiers-worlds --model NAME --client.base-url URL --no-push \
        --env.taskset.environment babyai --env.taskset.tasks goto --env.taskset.first-seed 200
"""

from trajkit.environments.adapters.verifiers import TextWorlds, TextWorldsEnv

__all__ = ["TextWorlds", "TextWorldsEnv"]
