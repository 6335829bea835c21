"""The controller: planners that do no I/O, and what writes their plans to the metadata store."""
