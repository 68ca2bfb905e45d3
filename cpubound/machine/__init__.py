"""What this machine is, without measuring anything."""
