"""Labelled files to examples. `read.read` is the way in; the other files know one layout each."""
