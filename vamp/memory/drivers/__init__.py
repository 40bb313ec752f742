"""Implementations of `vamp.memory.driver.VmmDriver`."""
