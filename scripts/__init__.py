"""What demo, tests and maintainers run."""
