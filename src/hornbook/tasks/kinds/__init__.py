"""The kinds of tasks, one file each."""
