"""Replicas against four chains, the ensemble, EMA and SAM at equal gradients."""
