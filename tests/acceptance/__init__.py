"""What a user of Stagepost sees, through its public API and commands alone."""
