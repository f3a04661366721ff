"""Does the paper hold? One file per experiment."""
