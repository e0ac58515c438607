"""The scheduler daemon: stateless, any number of them, each places its own jobs (Sparrow §3, §6); of policy flow one
leads."""
