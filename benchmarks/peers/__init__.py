"""Libraries for the same need, measured in the same run; they come with the dependency group ``bench``."""
