"""What several commands use: finding and opening a model, options, and output for terminals."""
