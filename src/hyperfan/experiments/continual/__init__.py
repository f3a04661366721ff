"""The paper's section 4.2: three regression tasks, one after another."""
