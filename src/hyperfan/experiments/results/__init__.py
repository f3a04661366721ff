"""Everything that only reads finished runs: their numbers, the claims that these decide, and the pages that show it."""
