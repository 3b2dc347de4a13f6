"""What data is and what the public knows about it: equations, and how data is read.

``manifold`` is the domain that most is built on, from equations as ``text`` or as matrices that
are ``given``; ``component`` is the part of it that equations bind together, ``network`` recognises
flows, ``outputs`` says which equations the published numbers will obey, and ``reading`` and
``frames`` take data in and hand results back.
"""
