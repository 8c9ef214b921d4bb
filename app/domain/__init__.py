"""The words and rules of the product, and nothing else.

Everything here is pure: no input or output, no clock, no randomness but :mod:`app.domain.ids`,
no framework. The layers above pass values in and take values out.
"""
