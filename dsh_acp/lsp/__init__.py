"""Language servers: found by the ending of a file's name, started when first asked.

`servers` says which there are and needs nothing. `pool` keeps the running ones. `client` speaks to
one through pygls, which is slow to import: whoever asks first imports it, in a thread.
"""
