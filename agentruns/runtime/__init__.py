"""What happens: asyncio services that submit, read, drive and finish runs over the store."""
