"""The paper's section 4.3: All-CNN on CIFAR-10, its weights made in chunks."""
