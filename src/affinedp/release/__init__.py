"""Publish once, safely: exact coordinates, integer noise, and nothing private besides.

``publish`` checks, charges, draws and publishes, and makes measurements of OpenDP; ``engines`` and
``parts`` do so for tables in parts.
"""
