"""What a client's threads have of a session's jobs: futures, and how they are waited for."""
