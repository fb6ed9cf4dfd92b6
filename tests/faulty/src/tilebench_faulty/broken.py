"""A plugin that cannot be imported, as one whose DSL has moved a module."""

raise ImportError("cannot import name 'jit' from 'a_dsl_that_moved_it'")
