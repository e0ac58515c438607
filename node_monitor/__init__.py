"""The node-monitor daemon: queues reservations, asks for tasks, supervises executors (Sparrow §6)."""
