"""Settings from outside: what to compare, validated, and built into the parts."""
