"""The scheduler: pure. No clock, no randomness, no I/O, no logging; daemon and simulator are shells around it."""
