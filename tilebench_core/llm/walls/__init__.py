"""The walls around candidates: what a process inside may see and use, how it is put there, and the probe that proves it."""
