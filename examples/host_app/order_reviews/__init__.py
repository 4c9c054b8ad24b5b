"""Review orders before they ship: a small service that keeps its orders and asks for agent runs in one transaction."""
