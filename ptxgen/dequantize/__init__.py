"""The dense weight again: our kernel that unpacks it, and the product that runs on it."""
