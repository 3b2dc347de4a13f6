"""What people read and look at: reports in text and HTML, and figures.

``report`` says it, ``page`` lays it out, ``plot`` draws it, and ``baseline`` is the independent
noise that everything is compared with.
"""
