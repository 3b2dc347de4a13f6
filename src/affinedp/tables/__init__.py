"""Private tables: published numbers whose totals still add up.

:class:`TableRelease` says what the public knows about a table (equations between columns, a
hierarchy of rows, public margins) and what is promised; it designs the noise and releases pandas
DataFrames with it.  :func:`read_release` reads the same from a TOML file.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
