"""The PTX vocabulary: one function an instruction, with its constraints, minimum arch and manual section."""
