"""The table, its samplers, and the way it is stored. Imports no other room."""
