"""Where a microsecond of a call goes: hops between processes, CPU time, wake-ups, system calls."""
