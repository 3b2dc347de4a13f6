"""Circuits, the directions of Definition 4: list them, or find the worst.

``ask`` answers the two questions and chooses a search, ``prepare`` brings a component into the
form that a search wants, ``compiled`` holds the searches themselves.
"""
