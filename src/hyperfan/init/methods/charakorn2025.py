"""Charakorn, Cetin, Tang & Lange, *Text-to-LoRA*, ICML 2025 (T2L), and Doc-to-LoRA (D2L) from the same laboratory:
how their code, as read in public copies of it, starts hypernets that make LoRA's factors, ΔW = s·B·A. Neither is a
method here: both are a :class:`hyperfan.LoRA`.

*T2L* with ``match_lora_init`` is Bias-HyperInit (:mod:`beck2022`): H = 0, and the biases of a head are what peft
draws, A ~ U(±1/√d_in) and B = 0. All conditions start with the same A, and ΔW = 0. That is ``LoRA(rank, alpha,
share=0)``, whose A has the variance gain/d_in, where peft's has 1/(3·d_in): a step on B then moves ΔW by √(3·gain) as
much. Without that option its heads stay as torch draws them; with ``zero_init_head``, without biases and without an
offset both factors are zero, and nothing would ever be learnt.

*D2L* normalises each code to ‖h‖ = 1. Its A = H·h has Var(H) = 0.25/(d_latent + r·d_lora), where d_lora is the largest
d_in + d_out; B is H·h times a factor for each rank that starts at 0. What is common to all conditions, β, is not added
to A and B: its code joins it to them as r ranks more, with Var(β) = 0.04/(r·d_in) in A and 0 in B. So ΔW = 0, and the
first step trains that factor and β of B. Of A's variance over all 2r ranks

    ρ = Var(H)/(Var(H) + Var(β))

is generated, 0.75 for d_in = d_out = 2048, r = 8 and d_latent = 512, as :func:`doc_to_lora_variances` has them. That is
``Embedding(…, normalise=True)`` with ``LoRA(rank, alpha, share=ρ)``, which puts the zero into H of B instead of a
factor, and adds what is common within r ranks: B learns from the first step, A and the trunk from the second, in both.

Use LoRA's default, a share of 0.1, unless you repeat one of the two.
"""

D2L_GENERATED, D2L_COMMON = 0.25, 0.04
"""The numerators of D2L's Var(H) and Var(β)."""


def text_to_lora_variance(d_in: int) -> float:
    """T2L's Var(β) of A, as peft draws it; H, and β of B, are zero."""
    return 1 / (3 * d_in)


def doc_to_lora_variances(d_in: int, d_out: int, rank: int, latent: int) -> tuple[float, float]:
    """D2L's Var(H), of A and of B, and Var(β) of A, where all layers have these sizes.

    >>> generated, common = doc_to_lora_variances(2048, 2048, rank=8, latent=512)
    >>> round(generated / (generated + common), 2)
    0.75
    """
    return D2L_GENERATED / (latent + rank * (d_in + d_out)), D2L_COMMON / (rank * d_in)
