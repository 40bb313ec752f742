"""What this host does: copies, page moves, model steps, measured and written as one profile that `sim` reads."""
