"""Plugins for the engines that people serve with; each imports its engine only when called."""
