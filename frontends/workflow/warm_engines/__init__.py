"""The executor's side: processes that keep an engine warm, one for each engine and user."""
