"""The controller: planners that do no I/O, and the code that writes their plans to the metadata store."""
