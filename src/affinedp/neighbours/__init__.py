"""Who must look alike: directions in which two data sets may differ.

``adjacency`` holds what all neighbours share, chosen free sets and given directions;
``circuit_adjacency`` is Definition 4 of the paper, and ``circuits`` searches its directions.
"""
