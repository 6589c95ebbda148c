"""Passes: tile program to tile program, same meaning."""
