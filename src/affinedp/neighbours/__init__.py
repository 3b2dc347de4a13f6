"""Who must look alike: directions in which two data sets may differ.

``adjacency`` holds what all neighbours share, ``free_sets`` and ``given_directions`` those that the
caller chooses; ``circuit_adjacency`` is Definition 4 of the paper, and ``circuits`` searches its
directions.
"""
