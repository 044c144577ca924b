"""The scheduler: pure. No clock, no randomness, no I/O, no logging; the daemon and the simulator are shells around it."""
