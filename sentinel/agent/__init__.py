"""The node agent's shell: turns the host into events, and effects into deeds. All judgement is in `core/`."""
