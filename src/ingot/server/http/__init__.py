"""HTTP itself: connections, what a request must pass, and the forms of responses."""
