"""The providers that come with TileBench: two families of APIs, and two that answer from files."""
