"""The page in the browser: see the leak, fix it, take the script home.

Every number on the page comes from the public Python API; the page lays out and draws, and
computes nothing.  It is served on this machine only.
"""
