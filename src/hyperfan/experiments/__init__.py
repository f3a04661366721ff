"""Does the paper hold? One folder per experiment; everything that experiments share is written once beside them."""
