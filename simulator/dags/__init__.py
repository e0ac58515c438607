"""Jobs of stages on machines with several resources, under virtual time: the altruistic plane's allocator, and the
schedulers that paper 002 measures it against, on the same jobs.
"""
