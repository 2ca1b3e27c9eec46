"""Effective samples per gradient and per second: targets, samplers here and elsewhere, measures."""
