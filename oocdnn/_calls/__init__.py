"""From arguments to a call of the core: windows, sizes, operations, and the current context."""
