"""What can go wrong with a plugin, as a plugin. Only the test suite installs it."""
