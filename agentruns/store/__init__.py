"""How runs are stored: repositories, the unit of work, and the mapping between rows and records. Synchronous."""
