"""How a rule is applied to tensors: eagerly or compiled, in buckets, with its noise.

Nothing of this has to be read to follow, change or add a sampler.
"""
