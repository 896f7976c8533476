"""What a secure sum of many reports reveals."""
