"""Every table and figure of the paper, and two beyond it, as one command.

An item (one file each) names the jobs it needs and turns their results into a table, a figure and
a verdict. A job is one computation whose result is one JSON file; items share jobs by name.
"""
