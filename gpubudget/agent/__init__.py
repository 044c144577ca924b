"""The agent of one host: real processes, GPUs, health and repair."""
