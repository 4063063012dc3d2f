"""Quantized checkpoints of other tools, read lazily: detection, one importer for each format.

`ptxgen.checkpoint.open.open_checkpoint` is the way in; docs/formats.md has the table of formats.
"""
