"""What this host can run, and what holds it back."""
