"""What those are used to who come from other tools, done with these and with Sparrow: what each way costs."""
