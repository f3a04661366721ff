"""How is it called? The command line, thin: each command imports what it needs when it runs."""
