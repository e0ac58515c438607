"""The client library: jobs, calls and their outcomes, for threads and for asyncio."""
