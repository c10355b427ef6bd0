"""The bus between agents and coordinator: one interface, adapters behind it."""
