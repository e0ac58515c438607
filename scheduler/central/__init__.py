"""The central plane: one scheduler that sees every slot, and keeps what has none (§7.4)."""
