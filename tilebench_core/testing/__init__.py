"""Contract tests for backends and packs, ours and others': subclass them in your own test suite."""
