"""Who may do what: principals, tokens, certificates."""
