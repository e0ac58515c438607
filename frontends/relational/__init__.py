"""What every reader of SQL trees needs: blocks, constructs that are not supported, what sqlglot says of errors."""
