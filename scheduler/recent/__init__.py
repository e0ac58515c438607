"""What a scheduler remembers for people who look at it: the last hour, and the tasks of jobs. Pure, and bounded."""
