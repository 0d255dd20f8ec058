"""Where vectors are kept and searched."""
