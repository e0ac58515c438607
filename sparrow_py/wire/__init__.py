"""How processes talk: messages, links, and where the schedulers are."""
