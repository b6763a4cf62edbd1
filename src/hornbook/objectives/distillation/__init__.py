"""Objectives of distillation: which quantities of student and teacher are matched, and their losses."""
