"""The figures of the Sparrow paper, simulated: what each needs, runs of many simulations, closed forms, plots."""
