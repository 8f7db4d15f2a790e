"""Guess a number: a complete environment for trajkit."""

import random

from trajkit.environments.base import Result, Start


class GuessNumber:
    """Find a number from 1 to `top`; a wrong guess is answered by higher or lower."""

    tasks = ("easy", "hard")
    success = "found >= 1"

    def __init__(self, task: str, top: int = 100) -> None:
        self.top = top
        self.max_steps = 20 if task == "easy" else 7

    def reset(self, seed: int) -> Start:
        self.number = random.Random(seed).randint(1, self.top)
        self.low, self.high, self.n_guesses, self.found = 1, self.top, 0, False
        mission = f"Find the number from 1 to {self.top} in {self.max_steps} guesses."
        return Start(mission, "What is your first guess?", initial_state_hash=f"{mission} {self.number}")

    def step(self, text: str | None) -> Result:
        self.n_guesses += 1
        answer, guess = "Say a number in digits.", int(text) if text in self.legal_actions() else None
        if guess is not None and guess < self.number:
            answer, self.low = f"It is higher than {guess}.", max(self.low, guess + 1)
        elif guess is not None and guess > self.number:
            answer, self.high = f"It is lower than {guess}.", min(self.high, guess - 1)
        elif guess is not None:
            answer, self.found = "You found it.", True
        is_last = self.n_guesses == self.max_steps
        return Result(answer, float(self.found), terminated=self.found, truncated=is_last and not self.found)

    def legal_actions(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(1, self.top + 1))

    def expert_action(self) -> str:
        return str((self.low + self.high) // 2)

    def statistics(self) -> dict[str, float]:
        return {"found": self.found, "n_guesses": self.n_guesses}
