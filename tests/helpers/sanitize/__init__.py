"""make sanitize: one kernel of each kind under compute-sanitizer, on a GPU."""
