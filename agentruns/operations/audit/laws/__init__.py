"""The laws that stored rows can show, by subject."""
