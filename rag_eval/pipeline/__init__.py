"""The steps of the pipeline: functions from tables and parts to tables, and the workspace that stores the results."""
