"""Circuits, the directions of Definition 4: list them, or find the worst.

``search`` answers the two questions and chooses a search, ``compiled`` holds the searches.
"""
