"""What the public knows: equations as text or matrices, and the affine manifold they make.

``text`` reads equations into exact coefficients, ``elimination`` brings them into canonical
form, ``manifold`` is the object that everything else is built on, ``component`` the part of it
that equations bind together, ``incidence`` recognises flows in a network, and ``outputs`` says
which equations the numbers that are published will obey.
"""
