"""The `ingot` command: one module per subcommand, imported when it is used."""
