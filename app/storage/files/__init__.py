"""Files: outputs and views on disk, what is known of them, and the one place where they are opened."""
