#!/usr/bin/env python3
"""A stand-in for Slurm's sbatch: it runs the array of a job as processes of this machine, two at a time."""

import os
import re
import subprocess
import sys
from pathlib import Path


def main(script: str) -> int:
    text = Path(script).read_text()
    array = re.search(r"^#SBATCH --array=([^\n%]*)", text, re.MULTILINE)[1]
    log = re.search(r"^#SBATCH --output=(.*)$", text, re.MULTILINE)[1]
    if array.startswith("0-"):
        numbers = list(range(int(array[2:]) + 1))
    else:
        numbers = [int(number) for number in array.split(",")]
    if os.environ.get("FAKE_SBATCH_TWICE"):
        numbers += numbers
    sys.stdout.write("Submitted batch job 7\n")
    sys.stdout.flush()
    code, running = 0, []
    while numbers or running:
        while numbers and len(running) < 2:
            number = numbers.pop(0)
            with Path(log.replace("%a", str(number))).open("a") as file:
                environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}
                running.append(subprocess.Popen(["bash", script], env=environment, stdout=file, stderr=file))
        code = max(code, abs(running.pop(0).wait()))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1]))
