"""Which numbers are measured, and how outputs are made of them: one file for each structure."""
