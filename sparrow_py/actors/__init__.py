"""Actors: an object in a leased task whose methods clients, tasks and other actors call, one call at a time."""
