"""The few places that touch clocks, processes and files on behalf of everybody else."""
