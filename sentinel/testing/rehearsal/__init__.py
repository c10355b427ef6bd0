"""The rehearsal engine: real processes that behave like a tensor-parallel engine, so that a fire drill needs no GPU.

Ranks are processes that meet in a collective over sockets at every step; they print SGLang's log lines and NCCL's
enqueue lines, have a watchdog that really kills, and can be frozen for real in the ways engines freeze. Nothing of
Sentinel runs inside it.
"""
