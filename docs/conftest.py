"""Doctests are taken from the pages; scripts and what a build writes are not collected."""

collect_ignore_glob = [
    "conf.py",
    "weigh.py",
    "_extensions/*",
    "gallery/*",
    "_build/*",
    "generated/*",
]
