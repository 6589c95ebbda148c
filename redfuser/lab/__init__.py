"""The rule laboratory: what a file of rewrite rules makes of the catalogue, and whether the rules are true.

`redfuser lab RULES.py` is its command; `run_lab` does the same from Python.
"""
