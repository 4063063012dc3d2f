"""The PTX vocabulary: one function an instruction, with constraints, minimum arch and section."""
