"""Figures of the report: plain numbers in, small inline SVG and its data table out."""
