"""Least noise where structure stands in for matrices: trees of totals, margins, both."""
