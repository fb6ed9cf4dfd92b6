"""One operator whose space of configurations the case chooses."""
