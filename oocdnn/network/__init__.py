"""Plans of whole training steps within a limit of device memory. Knows no framework."""
