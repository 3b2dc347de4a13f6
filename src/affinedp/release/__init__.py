"""Publish once, safely: exact coordinates, integer noise, and nothing private besides.

``publish`` checks, charges, draws and publishes, ``engines`` and ``parts`` do so for tables in
parts, and ``interoperate`` makes measurements of OpenDP and events of dp_accounting.
"""
