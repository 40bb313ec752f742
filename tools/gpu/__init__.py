"""Checks and measurements on a host with a CUDA device."""
