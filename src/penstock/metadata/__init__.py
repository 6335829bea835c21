"""The metadata store, the image built from it, and the dynamic settings of a broker."""
