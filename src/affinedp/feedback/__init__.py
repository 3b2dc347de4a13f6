"""Releases in steps, for equations whose offsets depend on what was published before.

``follow`` says which outputs must be read and how the others follow, ``plan`` holds all that is
public about it, ``state`` keeps the one draw, and ``steps`` is what people use.
docs/explanation/feedback.md says why the promise holds.
"""
