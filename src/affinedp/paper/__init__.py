"""Every number and figure of the paper, computed again."""
