"""Distils a teacher into a student, on plain text or on a task, into one run folder."""
