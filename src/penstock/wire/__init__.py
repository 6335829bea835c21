"""The protocol as bytes: frames, messages and record batches, read from strangers and written for them.

``primitives`` has the types, ``api/`` a generated module per API, ``frame``, ``produce`` and ``fetch`` what is written
by hand, ``records`` and ``record_columns`` the batches, ``record_loops`` what touches every record, ``compression`` the
codecs. Nothing here does I/O or keeps state.
"""
