"""The operator's file of what runs of stages have shown, in SQLite: `file` reads and writes it, `keeping` does so for a
scheduler without holding up its loop. Schedulers that need no such file import nothing of this."""
