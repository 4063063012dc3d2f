"""The PTX vocabulary: one function an instruction; its constraints, minimum arch, manual section."""
