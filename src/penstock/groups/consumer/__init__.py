"""Groups with the consumer protocol (KIP-848): the coordinator computes and reconciles assignments."""
