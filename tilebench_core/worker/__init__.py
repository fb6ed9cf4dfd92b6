"""The worker: a process that holds the device, and the parent's handle on it."""
