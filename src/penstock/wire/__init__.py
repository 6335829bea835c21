"""The wire protocol: codecs of frames, messages and record batches. All input is untrusted.

``primitives`` has the types, ``api/`` a generated module per API, ``frame``, ``produce`` and ``fetch`` what is written
by hand, ``records`` and ``record_columns`` the batches, ``record_loops`` what touches every record, ``compression`` the
codecs. Nothing here does I/O or keeps state.
"""
