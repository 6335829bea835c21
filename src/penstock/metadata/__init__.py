"""The metadata store, the image made of it, and the settings that follow it."""
