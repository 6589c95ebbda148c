"""Tiles on matrix units: from phases with products to fragments in registers, and their CUDA."""
