"""What a scheduler holds of its jobs, tasks and nodes, whichever plane places the tasks."""
