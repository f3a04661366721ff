"""The chunked correction in the code of von Oswald, Henning, Grewe & Sacramento, *Continual learning with
hypernetworks*, ICLR 2020, and in hypnettorch: no method here, because :class:`hyperfan.Chunks` meet every target
without it.

A flat chunk of the mainnet's weights is made from a condition e (n_e coordinates) and the chunk's identity c (n_c),
joined, by a hypernet with fan-in init. Then Var(W) = (n_e·Var(e) + n_c·Var(c))/(n_e + n_c), and their correction puts
what the chunk should have into the variance of its identity:

    Var(c) = max((n_e + n_c)·Var(W) − n_e·Var(e), 0)/n_c

where Var(W) is the mean over the tensors that a chunk covers. Conditions of variance 1 are far too large for it: a
weight of 500 inputs needs Var(W) = 0.004, and the identity's variance is cut off at zero, where the weights stay
n_e/(n_e + n_c)/0.004 times too large, about 125 for n_e = n_c. It asks for Var(e) < (n_e + n_c)/n_e·Var(W) in the
narrowest chunk, and what a chunk covers of a bias and of a weight has one variance.

``Chunks(…, flat=True, embedding=n_c)`` leave embeddings at their variance, and give each *tensor* a factor, measured
on the codes that there are, so that each is at its target whatever the condition's size.
"""
