"""What Sentinel does to the world: one module a deed. Nothing here decides."""
