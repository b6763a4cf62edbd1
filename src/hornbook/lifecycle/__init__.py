"""Lifecycle of an output folder: locking (one writer at a time), resume checks, removal of temporary files, and signal
handling. The contents of the folder are decided elsewhere. This package imports nothing heavy, such as torch."""
