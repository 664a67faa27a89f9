"""What users may do with their memory: see, correct, export and delete it, and switch it off."""
