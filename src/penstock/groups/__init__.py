"""Consumer groups and their committed offsets: rules, record formats, and the coordinator that drives them."""
