"""Linear equations that data obeys, and what each would cost if the public knew it.

What is found is private: it is told to whoever holds the data, and goes into no mechanism unless
they write it there.
"""
