"""Callbacks for other people's training loops.

`entropy_mcmc.integrations.lightning` and `entropy_mcmc.integrations.transformers` each have a
`CollectSamples`. The packages that they are for are imported there and nowhere else.
"""
