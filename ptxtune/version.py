"""The version of this distribution; pyproject.toml states the same one."""

VERSION = "0.1.0"
