"""Runs that outlive crashes: one row in SQLite each, and releases of one data set in steps."""
