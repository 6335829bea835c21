"""The `penstock` command: one file per noun. Modules import what a command needs inside it, so that all start fast."""
