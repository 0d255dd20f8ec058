"""Cutting documents into chunks that know where they stand."""
