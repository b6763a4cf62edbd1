"""The life of a folder that a command writes: one writer at a time, resume or refuse, nothing half-written left behind,
and how the process is stopped. What is written into the folder is decided elsewhere; nothing heavy is imported here."""
