"""Sources of the C printer of tile programs."""
