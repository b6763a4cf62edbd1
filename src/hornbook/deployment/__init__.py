"""Models on the machines that use them: as files for small ones, and what each of several costs and is worth."""
