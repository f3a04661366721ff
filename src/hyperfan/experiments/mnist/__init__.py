"""The paper's section 4.1: a feedforward net on MNIST, plain and generated."""
