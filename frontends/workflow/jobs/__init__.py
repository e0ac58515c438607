"""Which operators can be one job of an engine: by the engine's kind, and by the idioms that it knows (§3.4)."""
