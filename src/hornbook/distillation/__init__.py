"""Puts a teacher, a student and text or labelled data together into one run folder."""
