"""A live server as a subprocess, replayed against and measured: the backend `cpu`."""
