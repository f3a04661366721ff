"""The paper's section 4.4: a Bayesian MobileNet on ImageNet, or on another folder of photographs."""
