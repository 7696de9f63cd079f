"""Evidence for what capeneuro claims; nothing of it is installed."""
