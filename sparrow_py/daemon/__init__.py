"""What all daemons and commands have in common: options, start and end, HTTP."""
