"""From a folder of whatever an operator has to observations: safe reading, unframing, recognition, clocks, hosts."""
