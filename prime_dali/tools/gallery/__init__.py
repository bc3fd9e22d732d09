"""``prime-dali gallery``: PRIME on photographs, as a figure or as a searchable page."""
