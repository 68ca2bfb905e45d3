"""The laboratory: how the instrument itself is checked against standards."""
