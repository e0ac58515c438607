"""The command framework: tasks are commands (argv, stdin, environment, directory), results their exit code and output.

`frontends.command.tasks` is the frontend, `python -m frontends.command.executor` the executor.
Node monitors run commands only where their operator says so.
"""
