"""Any number of schedulers: CPU time per decision and median response with 1, 2, 4, … of them at the same load.

Simulated: the daemons' cores under both profiles, as processes that take time for each frame and message (`costs`). A
scheduler is one process and does one thing at a time; so is a node monitor. *µs per task* is what all schedulers, or
all node monitors, spend on a task; *busy* the share of the time that a scheduler works, above 100 % if it cannot keep
up with what arrives; *most tasks/s* those of all schedulers together if they work all the time, so that nothing has to
wake them. *Over ideal* is a job's response time less its longest task.

`--live` runs real daemons on this machine, as far as its cores go: one process hosts all node monitors, tasks sleep,
and jobs arrive at random. CPU time is the kernel's; links are TCP; there are no audit logs. *Model* is what the costs
say of the same jobs. *Sends* are system calls of all schedulers, counted by `strace` where that is installed.

The value is the tasks per second that one scheduler can place, by the model or, with `--live`, by its CPU time.
"""
