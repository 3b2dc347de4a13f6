"""Publish once, safely: exact coordinates, integer noise, and nothing private besides.

``publish`` checks, charges, draws and publishes; ``fixed_point`` multiplies without rounding;
``interoperate`` makes measurements of OpenDP and events of dp_accounting.
"""
