"""`python -m trajkit` is the command `trajkit`."""

from trajkit.cli.main import main

if __name__ == "__main__":
    main()
