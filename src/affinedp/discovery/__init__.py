"""The equation you forgot: what data obeys, and what it would cost if the public knew it.

What is found is private: it is told to whoever holds the data, and goes into no mechanism unless
they write it there.
"""
