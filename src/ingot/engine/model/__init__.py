"""A model file made ready to run, and what is measured or read of it without requests."""
