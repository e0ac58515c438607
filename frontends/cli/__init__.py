"""The `sparrow` command: one file per subcommand."""
