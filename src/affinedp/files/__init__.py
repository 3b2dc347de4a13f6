"""Files that people and programs hand to affinedp: problems, data, saved mechanisms."""
