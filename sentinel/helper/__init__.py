"""The privileged helper: answers a closed list of questions about processes of allowed control groups.

It is the only part of Sentinel that may trace other processes. It has no network, reads no memory, takes no paths and
no commands from its clients, and uses nothing but the standard library. systemd starts one for each connection.
"""
