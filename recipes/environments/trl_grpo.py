"""Train a model with TRL's GRPOTrainer on worlds of BabyAI; it acts by calling a tool.

needs: pip install 'trajkit[babyai,trl]' datasets; a GPU; network for the model
minutes: not measured
cost: none
leaves: checkpoints in grpo/
"""

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from trajkit.environments.adapters import trl_factory, trl_rows

trainer = GRPOTrainer(
    model="Qwen/Qwen3-0.6B",  # any model whose chat template supports tools
    train_dataset=Dataset.from_list(trl_rows("babyai", range(1000), tasks=["goto"])),
    environment_factory=trl_factory("babyai"),
    args=GRPOConfig(
        output_dir="grpo",
        num_generations=8,  # attempts at each world
        max_completion_length=4096,  # of the whole episode, observations included
        chat_template_kwargs={"enable_thinking": False},
    ),
)
trainer.train()
