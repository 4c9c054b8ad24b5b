"""Why a run does not progress: what is read of it, the rules, and the answer."""
