"""The web UI: pages for people who would rather look than curl; a sibling of the API that never imports it.

The invariant: what the server keeps is shown as text, whatever it is; no page needs a script to be read.
"""
