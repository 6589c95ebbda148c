"""The demonstration: search real text with plain NumPy functions, each compiled and compared with NumPy."""
